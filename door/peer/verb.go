package peer

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// verbs is every verb that one server may ask of another. A new one is one line.
var verbs = []verb{
	named[session.Send]("send"),
	named[session.Prompt]("prompt"),
	named[session.Cancel]("cancel"),
	named[session.Interrupt]("interrupt"),
	named[session.Answer]("answer"),
	named[session.OpenThread]("open_thread"),
	named[session.ArchiveThread]("archive_thread"),
	named[session.Schedule]("schedule"),
	named[session.Unschedule]("unschedule"),
	named[session.Spawn]("spawn"),
	named[session.EndChild]("end_child"),
	named[session.Describe]("describe"),
	named[session.Archive]("archive"),
	named[session.Delete]("delete"),
	named[session.Run]("run"),
	named[session.EndExec]("end_exec"),
	named[session.Retry]("retry"),
	named[session.Continue]("continue"),
	named[session.Hibernate]("hibernate"),
	named[session.Wake]("wake"),
	named[session.Terminate]("terminate"),
	named[session.AskSnapshot]("ask_snapshot"),
	named[session.ImportSnapshot]("import_snapshot"),
	named[session.ForgetSnapshots]("forget_snapshots"),
	named[session.Swap]("swap"),
}

// errForeign means that a server of another version asked for what this one does
// not know. Nothing is wrong with what the client sent.
var errForeign = errors.New("not understood: the servers are not of one version")

// verb is a verb on the wire: its name and its fields.
type verb struct {
	name   string
	kind   reflect.Type
	decode func(args []byte) (session.Verb, error)
}

func named[V session.Verb](name string) verb {
	return verb{name: name, kind: reflect.TypeFor[V](), decode: func(args []byte) (session.Verb, error) {
		var v V
		if err := decode(args, &v); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errForeign, name, err)
		}
		return v, nil
	}}
}

// encodeVerb names a verb and spells its fields.
func encodeVerb(v session.Verb) (name string, args []byte, err error) {
	for _, known := range verbs {
		if known.kind == reflect.TypeOf(v) {
			args, err = encode(v)
			return known.name, args, err
		}
	}
	return "", nil, fmt.Errorf("%T is not for other servers: %w", v, dormouse.ErrInvalid)
}

// decodeVerb is the verb of a name with these fields.
func decodeVerb(name string, args []byte) (session.Verb, error) {
	for _, known := range verbs {
		if known.name == name {
			return known.decode(args)
		}
	}
	return nil, fmt.Errorf("%w: there is no verb %q", errForeign, name)
}
