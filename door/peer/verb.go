package peer

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// verbs is every verb that one server may ask of another. A new one is one line.
var verbs = []verb{
	named[law.Send]("send"),
	named[law.Prompt]("prompt"),
	named[law.Cancel]("cancel"),
	named[law.Interrupt]("interrupt"),
	named[law.Answer]("answer"),
	named[law.OpenThread]("open_thread"),
	named[law.ArchiveThread]("archive_thread"),
	named[law.Schedule]("schedule"),
	named[law.Unschedule]("unschedule"),
	named[law.Spawn]("spawn"),
	named[law.EndChild]("end_child"),
	named[law.Describe]("describe"),
	named[law.Archive]("archive"),
	named[law.Delete]("delete"),
	named[law.Run]("run"),
	named[law.EndExec]("end_exec"),
	named[law.Retry]("retry"),
	named[law.Continue]("continue"),
	named[law.Hibernate]("hibernate"),
	named[law.Wake]("wake"),
	named[law.Terminate]("terminate"),
	named[law.AskSnapshot]("ask_snapshot"),
	named[law.ImportSnapshot]("import_snapshot"),
	named[law.ForgetSnapshots]("forget_snapshots"),
	named[law.Swap]("swap"),
}

// errForeign means that a server of another version asked for what this one does
// not know. Nothing is wrong with what the client sent.
var errForeign = errors.New("not understood: the servers are not of one version")

// verb is a verb on the wire: its name and its fields.
type verb struct {
	name   string
	kind   reflect.Type
	decode func(args []byte) (law.Verb, error)
}

func named[V law.Verb](name string) verb {
	return verb{name: name, kind: reflect.TypeFor[V](), decode: func(args []byte) (law.Verb, error) {
		var v V
		if err := decode(args, &v); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errForeign, name, err)
		}
		return v, nil
	}}
}

// encodeVerb names a verb and spells its fields.
func encodeVerb(v law.Verb) (name string, args []byte, err error) {
	for _, known := range verbs {
		if known.kind == reflect.TypeOf(v) {
			args, err = encode(v)
			return known.name, args, err
		}
	}
	return "", nil, fmt.Errorf("%T is not for other servers: %w", v, dormouse.ErrInvalid)
}

// decodeVerb is the verb of a name with these fields.
func decodeVerb(name string, args []byte) (law.Verb, error) {
	for _, known := range verbs {
		if known.name == name {
			return known.decode(args)
		}
	}
	return nil, fmt.Errorf("%w: there is no verb %q", errForeign, name)
}
