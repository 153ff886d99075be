package hibernation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse"
)

// writer is a process that was started in a sandbox. It appends one record after
// the other to a file that it holds open, makes them durable now and then, and
// knows only from its memory which one is next.
type writer struct {
	Name string
	Exec dormouse.EventID // the command that started it
}

// pad is what records of different lengths are made of.
var pad = strings.Repeat("abcdefghijklmnopqrstuvwxyz0123456789", 20)

const (
	most  = 600 // bytes of pad in a record
	step  = 37
	prime = 104729
)

// record is what a writer writes as its n-th. Nothing in it is left to chance.
func record(name string, n int) string {
	k := n * step % most
	return fmt.Sprintf("%s %d %s %d\n", name, n, pad[:k], (n*7919+k)%prime)
}

// start is the command that starts a writer.
func (w writer) start() string {
	return fmt.Sprintf(`export name=%s pad=%s
setsid bash -c 'exec 8>>records 9<> <(:)
while n=$((n+1)); do
	k=$((n*%d%%%d))
	printf "%%s %%d %%s %%d\n" $name $n "${pad:0:k}" $(((n*7919+k)%%%d)) >&8
	((n%%50)) || sync -d records
	read -rt 0.0$((n%%5+2)) -u 9
done' dormouse-writer </dev/null >/dev/null 2>&1 &
echo $! > writer`, w.Name, pad, step, most, prime)
}

// look is what a person once saw of the records.
type look struct {
	Exec   dormouse.EventID
	Writer writer
	// Alive says that the writer went on.
	Alive bool
	// Size and Sum are of the records that were there.
	Size int
	Sum  string
}

// looking is a command that says whether the writer goes on, and what is there.
const looking = `state=dead; touch records; before=$(stat -c %s records)
for i in {1..200}; do
	grep -qa '[d]ormouse-writer' /proc/$(<writer)/cmdline || break
	[ $(stat -c %s records) -gt $before ] && state=alive && break
	sleep 0.1
done 2>/dev/null
size=$(stat -c %s records)
echo $state $size $(head -c $size records | sha256sum)`

// look sees what became of the writer, and starts another if it is gone. Whether
// it may be is for the judge to say.
func (s *sleeper) look(ctx context.Context) error {
	if len(s.writers) > 0 {
		result, err := s.mustRun(ctx, looking)
		if err != nil {
			return err
		}
		l := look{Exec: result.ID, Writer: s.writers[len(s.writers)-1]}
		if err := l.read(result.Output); err != nil {
			return err
		}
		s.looks = append(s.looks, l)
		if l.Alive {
			return nil
		}
	}
	s.starts++
	w := writer{Name: fmt.Sprintf("w%d", s.starts)}
	result, err := s.mustRun(ctx, w.start())
	if err != nil {
		return err
	}
	w.Exec = result.ID
	s.writers = append(s.writers, w)
	return nil
}

func (l *look) read(text string) (err error) {
	words := strings.Fields(text)
	const least = 3
	if len(words) < least {
		return fmt.Errorf("looking at the records printed %q", text)
	}
	l.Alive, l.Sum = words[0] == "alive", words[2]
	if l.Size, err = strconv.Atoi(words[1]); err != nil {
		return fmt.Errorf("looking at the records printed %q: %w", text, err)
	}
	return nil
}

// sum is the checksum of what a look saw.
func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// parse reads the name and the number of a record, which must be exactly what its writer
// writes.
func parse(line []byte) (name string, n int, err error) {
	words := bytes.Fields(line)
	if len(words) < 3 {
		return "", 0, errors.New("it is no record")
	}
	name = string(words[0])
	if n, err = strconv.Atoi(string(words[1])); err != nil {
		return name, 0, err
	}
	if n < 1 || string(line) != record(name, n) {
		return name, n, fmt.Errorf("it is not record %d of %s", n, name)
	}
	return name, n, nil
}
