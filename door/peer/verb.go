package peer

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// errForeign means that a server of another version sent a verb that this one does not
// know. The client did nothing wrong.
var errForeign = errors.New("not understood: the servers are not of one version")

// encodeVerb names a verb and encodes its fields.
func encodeVerb(v law.Verb) (name string, args []byte, err error) {
	r := law.RuleOf(v)
	if !r.Wire {
		return "", nil, fmt.Errorf("%T is not for other servers: %w", v, dormouse.ErrInvalid)
	}
	args, err = encode(v)
	return r.Name, args, err
}

// decodeVerb is the verb of a name with these fields.
func decodeVerb(name string, args []byte) (law.Verb, error) {
	for _, r := range law.Verbs {
		if r.Wire && r.Name == name {
			v := reflect.New(reflect.TypeOf(r.Zero()))
			if err := decode(args, v.Interface()); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", errForeign, name, err)
			}
			verb, _ := reflect.TypeAssert[law.Verb](v.Elem())
			return verb, nil
		}
	}
	return nil, fmt.Errorf("%w: there is no verb %q", errForeign, name)
}
