package catalog

import "github.com/dormouse-run/dormouse/internal/closedjson"

// Skill is a skill that an agent has.
type Skill struct {
	Type    string `json:"type"`
	ID      string `json:"skill_id"`
	Version string `json:"version"`
}

// SkillParams is a skill as it is asked for.
type SkillParams struct {
	Type    string                      `json:"type"`
	ID      string                      `json:"skill_id"`
	Version closedjson.Optional[string] `json:"version"`
}

const maxSkills, maxSkill, latest = 20, 64, "latest"

func resolveSkills(params []SkillParams) ([]Skill, error) {
	if len(params) > maxSkills {
		return nil, invalidf("skills", "are %d; at most %d are taken", len(params), maxSkills)
	}
	skills := make([]Skill, 0, len(params))
	for i, p := range params {
		path := at("skills", i)
		if p.Type != "anthropic" && p.Type != "custom" {
			return nil, invalidf(path+".type", "must be anthropic or custom, not %q", short(p.Type))
		}
		if err := checkLength(path+".skill_id", p.ID, 1, maxSkill); err != nil {
			return nil, err
		}
		s := Skill{p.Type, p.ID, p.Version.Or(latest)}
		if err := checkLength(path+".version", s.Version, 1, maxSkill); err != nil {
			return nil, err
		}
		skills = append(skills, s)
	}
	return skills, nil
}
