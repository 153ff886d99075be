package catalog

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// CredentialParams is a credential as it is asked for.
type CredentialParams struct {
	Auth        AuthParams                              `json:"auth"`
	DisplayName closedjson.Optional[string]             `json:"display_name"`
	Metadata    closedjson.Omittable[map[string]string] `json:"metadata"`
}

// AuthParams is what a credential is to be for: exactly one of its fields is set.
type AuthParams struct {
	oauth    *oauthParams
	bearer   *bearerParams
	variable *variableParams
}

type (
	bearerParams struct {
		Type      string     `json:"type"`
		Token     secretText `json:"token"`
		ServerURL string     `json:"mcp_server_url"`
	}
	oauthParams struct {
		Type        string                             `json:"type"`
		ServerURL   string                             `json:"mcp_server_url"`
		AccessToken secretText                         `json:"access_token"`
		Expires     closedjson.Optional[string]        `json:"expires_at"`
		Refresh     closedjson.Optional[refreshParams] `json:"refresh"`
	}
	refreshParams struct {
		RefreshToken  secretText                  `json:"refresh_token"`
		TokenEndpoint string                      `json:"token_endpoint"`
		ClientID      string                      `json:"client_id"`
		Scope         closedjson.Optional[string] `json:"scope"`
		Resource      closedjson.Optional[string] `json:"resource"`
		EndpointAuth  endpointParams              `json:"token_endpoint_auth"`
	}
	variableParams struct {
		Type       string                                `json:"type"`
		Name       string                                `json:"secret_name"`
		Value      secretText                            `json:"secret_value"`
		Networking scopeParams                           `json:"networking"`
		Injection  closedjson.Omittable[injectionParams] `json:"injection_location"`
	}
	injectionParams struct {
		Header closedjson.Omittable[bool] `json:"header"`
		Body   closedjson.Omittable[bool] `json:"body"`
	}
)

// endpointParams says how a token endpoint knows its client.
type endpointParams struct {
	Type   string
	Secret secretText
}

// scopeParams is which hosts a secret is to be sent to.
type scopeParams struct{ HostScope }

// oneOf decodes the type of an object that may be one of several. What it is
// instead is not quoted: it could be a secret that slipped.
func oneOf(raw []byte, kinds ...string) (string, error) {
	if raw[0] != '{' {
		return "", closedjson.Errorf("must be an object")
	}
	value := closedjson.Member(raw, "type")
	if value == nil {
		return "", closedjson.In("type", closedjson.Errorf("is required"))
	}
	var kind string
	if value[0] == '"' {
		_ = closedjson.Bind(value, &kind) // it is a string
	}
	if slices.Contains(kinds, kind) {
		return kind, nil
	}
	return "", closedjson.In("type", closedjson.Errorf("must be %s", strings.Join(kinds, " or ")))
}

// DecodeJSON implements closedjson.Decoder.
func (p *AuthParams) DecodeJSON(raw []byte) error {
	kind, err := oneOf(raw, typeOAuth, typeBearer, typeVariable)
	if err != nil {
		return err
	}
	switch kind {
	case typeOAuth:
		p.oauth = new(oauthParams)
		return closedjson.Bind(raw, p.oauth)
	case typeBearer:
		p.bearer = new(bearerParams)
		return closedjson.Bind(raw, p.bearer)
	}
	p.variable = new(variableParams)
	return closedjson.Bind(raw, p.variable)
}

// DecodeJSON implements closedjson.Decoder.
func (p *endpointParams) DecodeJSON(raw []byte) (err error) {
	if p.Type, err = oneOf(raw, endpointNone, endpointBasic, endpointPost); err != nil {
		return err
	}
	if p.Type == endpointNone {
		return closedjson.Bind(raw, new(Typed))
	}
	var object struct {
		Typed
		Secret secretText `json:"client_secret"`
	}
	err = closedjson.Bind(raw, &object)
	p.Secret = object.Secret
	return err
}

// DecodeJSON implements closedjson.Decoder.
func (p *scopeParams) DecodeJSON(raw []byte) (err error) {
	if p.Type, err = oneOf(raw, typeUnrestricted, typeLimited); err != nil {
		return err
	}
	if p.Type == typeUnrestricted {
		return closedjson.Bind(raw, new(Typed))
	}
	var object struct {
		Typed
		Hosts []string `json:"allowed_hosts"`
	}
	err = closedjson.Bind(raw, &object)
	p.ScopedHosts = &ScopedHosts{object.Hosts}
	return err
}

// secrets are those of a credential by field.
type secrets map[string]secretText

// The fields that are sealed.
const (
	fieldToken        = "token"
	fieldAccessToken  = "access_token"
	fieldRefreshToken = "refresh_token"
	fieldClientSecret = "client_secret"
	fieldSecretValue  = "secret_value"
)

// resolve is what is asked for, and its secrets.
func (p AuthParams) resolve(now time.Time) (Auth, secrets, error) {
	switch {
	case p.oauth != nil:
		return p.oauth.resolve(now)
	case p.bearer != nil:
		return p.bearer.resolve()
	case p.variable != nil:
		return p.variable.resolve()
	}
	return Auth{}, nil, invalidf("auth", "is required")
}

func (p *bearerParams) resolve() (Auth, secrets, error) {
	if _, err := ServerURL("auth.mcp_server_url", p.ServerURL); err != nil {
		return Auth{}, nil, err
	}
	if err := p.Token.check("auth.token", maxToken, true); err != nil {
		return Auth{}, nil, err
	}
	return Auth{Bearer: &Bearer{typeBearer, p.ServerURL}}, secrets{fieldToken: p.Token}, nil
}

func (p *oauthParams) resolve(now time.Time) (Auth, secrets, error) {
	if _, err := ServerURL("auth.mcp_server_url", p.ServerURL); err != nil {
		return Auth{}, nil, err
	}
	if err := p.AccessToken.check("auth.access_token", maxToken, true); err != nil {
		return Auth{}, nil, err
	}
	a := &OAuth{Type: typeOAuth, ServerURL: p.ServerURL}
	sealed := secrets{fieldAccessToken: p.AccessToken}
	if p.Expires.Given() {
		at, err := parseExpiry(p.Expires.Value, now)
		if err != nil {
			return Auth{}, nil, err
		}
		a.Expires = &at
	}
	if p.Refresh.Given() {
		var err error
		if a.Refresh, err = p.Refresh.Value.resolve(sealed); err != nil {
			return Auth{}, nil, err
		}
	}
	return Auth{OAuth: a}, sealed, nil
}

// parseExpiry reads when a token expires, which has to be later than now.
func parseExpiry(s string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return at, invalidf("auth.expires_at", "must be a time such as 2030-01-31T12:00:00Z")
	}
	if !at.After(now) {
		return at, invalidf("auth.expires_at", "must be in the future")
	}
	return at.UTC().Truncate(time.Microsecond), nil
}

func (p *refreshParams) resolve(sealed secrets) (*Refresh, error) {
	const path = "auth.refresh"
	const maxClient = 1024
	if err := p.RefreshToken.check(path+".refresh_token", maxToken, false); err != nil {
		return nil, err
	}
	sealed[fieldRefreshToken] = p.RefreshToken
	if _, err := ServerURL(path+".token_endpoint", p.TokenEndpoint); err != nil {
		return nil, err
	}
	if err := checkLength(path+".client_id", p.ClientID, 1, maxClient); err != nil {
		return nil, err
	}
	r := &Refresh{TokenEndpoint: p.TokenEndpoint, ClientID: p.ClientID, EndpointAuth: Typed{p.EndpointAuth.Type}}
	if p.Scope.Given() {
		if err := checkLength(path+".scope", p.Scope.Value, 1, maxToken); err != nil {
			return nil, err
		}
		r.Scope = &p.Scope.Value
	}
	if p.Resource.Given() {
		if err := checkLength(path+".resource", p.Resource.Value, 1, maxServerURL); err != nil {
			return nil, err
		}
		r.Resource = &p.Resource.Value
	}
	if p.EndpointAuth.Type != endpointNone {
		if err := p.EndpointAuth.Secret.check(path+".token_endpoint_auth.client_secret", maxClientSecret, false); err != nil {
			return nil, err
		}
		sealed[fieldClientSecret] = p.EndpointAuth.Secret
	}
	return r, nil
}

func (p *variableParams) resolve() (Auth, secrets, error) {
	if err := checkSecretName(p.Name); err != nil {
		return Auth{}, nil, err
	}
	if err := p.Value.check("auth.secret_value", maxSecretValue, true); err != nil {
		return Auth{}, nil, err
	}
	if err := p.Networking.check(); err != nil {
		return Auth{}, nil, err
	}
	// A body is searched for placeholders only where somebody asked for it.
	in, err := p.Injection.Value.resolve(Injection{Header: true})
	if err != nil {
		return Auth{}, nil, err
	}
	return Auth{Variable: &Variable{typeVariable, p.Name, p.Networking.HostScope, in}}, secrets{fieldSecretValue: p.Value}, nil
}

// resolve is where a placeholder is replaced; what is left out is as it was.
func (p injectionParams) resolve(was Injection) (Injection, error) {
	is := Injection{Header: p.Header.Or(was.Header), Body: p.Body.Or(was.Body)}
	if !is.Header && !is.Body {
		return is, invalidf("auth.injection_location", "needs header or body, or the secret would be used nowhere")
	}
	return is, nil
}

// check refuses hosts to which no secret is bound: a host of a credential is a name or an
// IPv4 address, without a port, as the API has it.
func (s HostScope) check() error {
	const path, most = "auth.networking.allowed_hosts", 16
	if s.ScopedHosts == nil {
		return nil
	}
	if n := len(s.AllowedHosts); n > most {
		return invalidf(path, "are %d; at most %d are taken", n, most)
	}
	for i, host := range s.AllowedHosts {
		if _, err := dormouse.ParseHost(host); err != nil || strings.ContainsAny(host, ":/[]") {
			return invalidf(at(path, i), "%q is not a host such as api.example.com, *.example.com or 192.0.2.1", short(host))
		}
	}
	return nil
}

var secretName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// reserved are the variables that decide which programs run in a sandbox, which way
// their requests go and whom they trust. A placeholder in one of them would break the
// sandbox, or lead around the proxy that replaces placeholders.
var reserved = []string{
	"PATH", "HOME", "SHELL", "ENV", "BASH_ENV", "IFS", "PWD", "USER", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY", "RSYNC_PROXY", "GRPC_PROXY", "NO_GRPC_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH",
	"PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT", "DENO_TLS_CA_STORE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	"BUNDLE_SSL_CA_CERT", "NIX_SSL_CERT_FILE",
}

// reservedPrefixes begin more of them.
var reservedPrefixes = []string{"LD_", "DYLD_", "NPM_CONFIG_"}

func checkSecretName(name string) error {
	const path, most = "auth.secret_name", 255
	if err := checkLength(path, name, 1, most); err != nil {
		return err
	}
	if !secretName.MatchString(name) {
		return invalidf(path, "must have capital letters, digits and underscores alone, and not begin with a digit")
	}
	if slices.Contains(reserved, name) || slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
		return invalidf(path, "%s would replace a variable that the sandbox needs", short(name))
	}
	return nil
}
