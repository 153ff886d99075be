package schema

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// Operation is one method of one path.
type Operation struct {
	// Method is in upper case, Path a template as in /v1/agents/{agent_id}.
	Method, Path string
	// Beta says that this is the twin that is asked for with a beta.
	Beta bool

	spec     *Spec
	pointer  string
	segments []string
	kinds    map[int]string // media type by status
	body     string         // pointer to the schema of a JSON request, if it has one
}

// beta ends the path of an operation that is asked for with a beta.
const beta = "?beta=true"

func newOperation(s *Spec, path, method string, op any) *Operation {
	bare, isBeta := strings.CutSuffix(path, beta)
	o := &Operation{
		Method: strings.ToUpper(method), Path: bare, Beta: isBeta, spec: s,
		pointer:  "/paths/" + escape(path) + "/" + method,
		segments: strings.Split(strings.Trim(bare, "/"), "/"),
		kinds:    make(map[int]string),
	}
	responses, _ := at(op, "responses").(map[string]any)
	for code, response := range responses {
		status, err := strconv.Atoi(code)
		content, _ := at(response, "content").(map[string]any)
		for kind := range content {
			if err == nil {
				o.kinds[status] = kind
			}
		}
	}
	if at(op, "requestBody", "content", "application/json") != nil {
		o.body = o.pointer + "/requestBody/content/" + escape("application/json") + "/schema"
	}
	return o
}

// escape writes a key as a part of a JSON pointer inside a URL's fragment.
func escape(key string) string {
	key = strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
	return strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D", "?", "%3F").Replace(key)
}

func (o *Operation) String() string { return o.Method + " " + o.Path }

// Operations lists what belongs to the Managed Agents family, each once.
func (s *Spec) Operations() []*Operation {
	var all []*Operation
	for _, o := range s.operations {
		if o.Beta && families[o.segments[1]] {
			all = append(all, o)
		}
	}
	return all
}

// families are the first words of the paths of the Managed Agents family.
var families = map[string]bool{
	"agents": true, "environments": true, "sessions": true, "vaults": true, "memory_stores": true, "files": true, "skills": true,
	"deployments": true, "deployment_runs": true, "dreams": true, "tunnels": true,
}

// Family is the first word of the operation's path.
func (o *Operation) Family() string { return o.segments[1] }

// Find returns the operation of a request, nil if there is none. Of two twins it
// is the one with a beta if the request has one.
func (s *Spec) Find(r *http.Request) *Operation {
	wantsBeta := r.URL.Query().Get("beta") == "true" || r.Header.Get("Anthropic-Beta") != ""
	var best *Operation
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for _, o := range s.operations {
		if o.Method != r.Method || !o.matches(segments) {
			continue
		}
		if best == nil || o.literals() > best.literals() || (o.literals() == best.literals() && o.Beta == wantsBeta) {
			best = o
		}
	}
	return best
}

func (o *Operation) matches(segments []string) bool {
	if len(segments) != len(o.segments) {
		return false
	}
	for i, s := range o.segments {
		if !strings.HasPrefix(s, "{") && s != segments[i] {
			return false
		}
		if segments[i] == "" {
			return false
		}
	}
	return true
}

// literals counts the segments that are not parameters.
func (o *Operation) literals() int {
	n := 0
	for _, s := range o.segments {
		if !strings.HasPrefix(s, "{") {
			n++
		}
	}
	return n
}

// Streams reports whether the operation answers with a stream of events.
func (o *Operation) Streams() bool { return o.segments[len(o.segments)-1] == "stream" }

// Event holds one event of a stream against the description.
func (o *Operation) Event(data []byte) error { return o.spec.hold(o.answer(http.StatusOK), data) }

// Request holds the body of a request against the description.
func (o *Operation) Request(body []byte) error {
	if o.body == "" {
		return nil
	}
	return o.spec.hold(o.body, body)
}

// answer points at the schema of a status.
func (o *Operation) answer(status int) string {
	return fmt.Sprintf("%s/responses/%d/content/%s/schema", o.pointer, status, escape(o.kinds[status]))
}

// Reply holds a whole answer against the description.
func (o *Operation) Reply(status int, header http.Header, body []byte) error {
	if status >= http.StatusBadRequest {
		return o.spec.Failure(status, header, body)
	}
	kind := o.kinds[status]
	if kind == "" {
		return fmt.Errorf("status %d is not one of %s", status, o)
	}
	got, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || got != kind {
		return fmt.Errorf("the content type is %q, not %s", header.Get("Content-Type"), kind)
	}
	if header.Get("Request-Id") == "" {
		return fmt.Errorf("there is no request-id")
	}
	if kind != "application/json" {
		return nil
	}
	return o.spec.hold(o.answer(status), body)
}

// kindsOf says which kinds of error a status may have.
var kindsOf = map[int][]string{
	http.StatusBadRequest:                  {"invalid_request_error"},
	http.StatusUnauthorized:                {"authentication_error"},
	http.StatusPaymentRequired:             {"billing_error"},
	http.StatusForbidden:                   {"permission_error"},
	http.StatusNotFound:                    {"not_found_error"},
	http.StatusMethodNotAllowed:            {"invalid_request_error"},
	http.StatusRequestTimeout:              {"timeout_error"},
	http.StatusConflict:                    {"conflict_error", "invalid_request_error", "memory_path_conflict_error", "memory_precondition_failed_error"},
	http.StatusPreconditionFailed:          {"invalid_request_error"},
	http.StatusRequestEntityTooLarge:       {"request_too_large"},
	http.StatusUnsupportedMediaType:        {"invalid_request_error"},
	http.StatusTooManyRequests:             {"rate_limit_error"},
	http.StatusRequestHeaderFieldsTooLarge: {"invalid_request_error"},
	http.StatusInternalServerError:         {"api_error"},
	http.StatusServiceUnavailable:          {"overloaded_error", "api_error"},
	http.StatusGatewayTimeout:              {"timeout_error"},
	529:                                    {"overloaded_error"},
}

// Failure holds an answer that says no against the description. The kinds of a
// conflict and of a body that is too large are not in the union of all errors,
// but in one of their own, or only in prose.
func (s *Spec) Failure(status int, header http.Header, body []byte) error {
	got, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || got != "application/json" {
		return fmt.Errorf("the content type of an error is %q", header.Get("Content-Type"))
	}
	var e struct {
		Error     json.RawMessage `json:"error"`
		RequestID *string         `json:"request_id"`
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return fmt.Errorf("the error is not JSON: %w", err)
	}
	var inner struct{ Type, Message string }
	if err := json.Unmarshal(e.Error, &inner); err != nil {
		return fmt.Errorf("the error says nothing: %w", err)
	}
	if inner.Message == "" {
		return fmt.Errorf("the error has no message")
	}
	if e.RequestID == nil || *e.RequestID != header.Get("Request-Id") {
		return fmt.Errorf("the error's request_id is not the request-id %q", header.Get("Request-Id"))
	}
	fits := false
	for _, k := range kindsOf[status] {
		fits = fits || k == inner.Type
	}
	if !fits {
		return fmt.Errorf("%s is not an error of status %d", inner.Type, status)
	}
	switch inner.Type {
	case "request_too_large":
		return nil
	case "conflict_error", "memory_path_conflict_error", "memory_precondition_failed_error":
		return s.hold(component("BetaManagedAgentsError"), e.Error)
	}
	return s.hold(component("BetaErrorResponse"), body)
}
