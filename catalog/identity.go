package catalog

import (
	"regexp"

	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// Identity is the identity that an agent acts under.
type Identity struct {
	Type    string `json:"type"`
	RoleARN string `json:"role_arn,omitempty"`
}

// The identities.
const (
	identityService = "service_account"
	identityRole    = "aws_role"
)

// IdentityParams is an identity as it is asked for.
type IdentityParams struct{ Identity }

// DecodeJSON implements closedjson.Decoder.
func (p *IdentityParams) DecodeJSON(raw []byte) error {
	kind, err := closedjson.Type(raw)
	if err != nil {
		return err
	}
	switch kind {
	case identityService:
		var only Typed
		err := closedjson.Bind(raw, &only)
		p.Type = only.Type
		return err
	case identityRole:
		return closedjson.Bind(raw, &p.Identity)
	}
	return closedjson.In("type", closedjson.Errorf("must be %s or %s, not %q", identityService, identityRole, short(kind)))
}

var roleARN = regexp.MustCompile(`^arn:aws(-[a-z]+)*:iam::[0-9]{12}:role/[\w+=,.@/-]+$`)

func (p *IdentityParams) resolve() (Identity, error) {
	switch {
	case p.Type == "":
		return Identity{Type: identityService}, nil
	case p.Type == identityRole && (len(p.RoleARN) > maxURL || !roleARN.MatchString(p.RoleARN)):
		return p.Identity, invalidf("execution_identity.role_arn", "%q is not the ARN of a role", short(p.RoleARN))
	}
	return p.Identity, nil
}
