package v1

import (
	"net/http"
	"slices"
	"time"
)

// Model is a model that the server can name.
type Model struct {
	ID   string
	Name string // for people
}

// modelInfo is a model as the API shows it. Of what this server does not know of
// a model it says null, as the API has it.
type modelInfo struct {
	Type         string    `json:"type"`
	ID           string    `json:"id"`
	Name         string    `json:"display_name"`
	Created      time.Time `json:"created_at"` // the epoch: the server does not know it
	Lifecycle    string    `json:"lifecycle"`
	Deprecated   *string   `json:"deprecated_at"`
	Retires      *string   `json:"retires_at"`
	Line         *string   `json:"line"`
	Capabilities *string   `json:"capabilities"`
	MaxInput     *int      `json:"max_input_tokens"`
	MaxOutput    *int      `json:"max_tokens"`
	Fallbacks    []string  `json:"allowed_fallback_models"`
}

const active = "active"

func newModelInfo(m Model) modelInfo {
	return modelInfo{Type: "model", ID: m.ID, Name: m.Name, Created: time.Unix(0, 0).UTC(), Lifecycle: active}
}

type modelPage struct {
	Data  []modelInfo `json:"data"`
	First *string     `json:"first_id"`
	Last  *string     `json:"last_id"`
	More  bool        `json:"has_more"`
}

const usualModels, mostModels = 20, 1000

func (s *Server) modelRoutes() {
	s.handle("/v1/models", methods{http.MethodGet: s.listModels})
	s.handle("/v1/models/{id}", methods{http.MethodGet: s.getModel})
}

func (s *Server) getModel(c call) error {
	m, ok := s.Models.Find(c.R.PathValue("id"))
	if !ok {
		return refusef(http.StatusNotFound, "there is no model %q", shorten(c.R.PathValue("id")))
	}
	return c.Answer(http.StatusOK, newModelInfo(m))
}

func (s *Server) listModels(c call) error {
	q := c.query()
	n := q.limit(usualModels, mostModels)
	after, before := q.text("after_id"), q.text("before_id")
	stages := q.list("lifecycle", active, "deprecated", "retired")
	all := s.Models.All()
	if len(stages) > 0 && !slices.Contains(stages, active) {
		all = nil
	}
	where := func(name, id string) int {
		i := slices.IndexFunc(all, func(m Model) bool { return m.ID == id })
		if id != "" && i < 0 {
			q.wrongf("%s: there is no model %q in this list", name, shorten(id))
		}
		return i
	}
	start, end := where("after_id", after)+1, where("before_id", before)
	switch {
	case q.err != nil:
		return q.err
	case after != "" && before != "":
		return invalidf("after_id and before_id cannot be combined")
	}
	var more bool
	if before != "" {
		start, more = max(0, end-n), end > n
	} else {
		end = min(len(all), start+n)
		more = end < len(all)
	}
	page := modelPage{Data: []modelInfo{}, More: more}
	for _, m := range all[start:end] {
		page.Data = append(page.Data, newModelInfo(m))
	}
	if len(page.Data) > 0 {
		page.First, page.Last = &page.Data[0].ID, &page.Data[len(page.Data)-1].ID
	}
	return c.Answer(http.StatusOK, page)
}
