package catalog

import (
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// Model is the model of an agent.
type Model struct {
	ID           string `json:"id"`
	Speed        string `json:"speed"`
	Effort       Typed  `json:"effort"`
	InferenceGeo string `json:"inference_geo,omitempty"`
}

// Typed is an object that has a type and nothing else.
type Typed struct {
	Type string `json:"type"`
}

const (
	speedStandard = "standard"
	speedFast     = "fast"
	// effortUsual is how hard models work that were not told.
	effortUsual = "high"
)

var efforts = []string{"low", "medium", "high", "xhigh", "max"}

// ModelParams is a model as it is asked for: its name, or an object.
type ModelParams struct {
	ID           string                           `json:"id"`
	Speed        closedjson.Optional[string]      `json:"speed"`
	Effort       closedjson.Optional[wordOrTyped] `json:"effort"`
	InferenceGeo closedjson.Optional[string]      `json:"inference_geo"`
}

// DecodeJSON implements closedjson.Decoder.
func (p *ModelParams) DecodeJSON(raw []byte) error {
	if raw[0] == '"' {
		return closedjson.Bind(raw, &p.ID)
	}
	if raw[0] != '{' {
		return closedjson.Errorf("must be the name of a model or an object, not %s", closedjson.Kind(raw))
	}
	type object ModelParams
	return closedjson.Bind(raw, (*object)(p))
}

// wordOrTyped is a word, or an object of which it is the type.
type wordOrTyped string

// DecodeJSON implements closedjson.Decoder.
func (w *wordOrTyped) DecodeJSON(raw []byte) error {
	if raw[0] == '{' {
		var t Typed
		err := closedjson.Bind(raw, &t)
		*w = wordOrTyped(t.Type)
		return err
	}
	return closedjson.Bind(raw, (*string)(w))
}

// resolve returns the model that is asked for. If it has no effort, that of was, the
// model before, stays.
func (p *ModelParams) resolve(was Model) (Model, error) {
	m := Model{ID: p.ID, Speed: p.Speed.Or(speedStandard), Effort: Typed{effortUsual}, InferenceGeo: p.InferenceGeo.Or("")}
	switch {
	case p.Effort.Given():
		m.Effort.Type = string(p.Effort.Value)
	case !p.Effort.Set && was.ID == p.ID:
		m.Effort = was.Effort
	}
	if err := checkLength("model.id", m.ID, 1, dormouse.MaxName); err != nil {
		return m, err
	}
	if strings.TrimSpace(m.ID) != m.ID {
		return m, invalidf("model.id", "has space around it")
	}
	if m.Speed != speedStandard && m.Speed != speedFast {
		return m, invalidf("model.speed", "must be %s or %s, not %q", speedStandard, speedFast, short(m.Speed))
	}
	if !slices.Contains(efforts, m.Effort.Type) {
		return m, invalidf("model.effort", "must be one of %s, not %q", strings.Join(efforts, ", "), short(m.Effort.Type))
	}
	return m, checkLength("model.inference_geo", m.InferenceGeo, 0, maxKey)
}
