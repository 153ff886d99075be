package sqlite_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/store/sqlite"
)

const (
	logHeader   = 32
	frameHeader = 24
	frameSize   = frameHeader + 4096
	frameCommit = 4
)

// logged is a database with a log of several commits, as a killed server leaves it.
type logged struct {
	database, log []byte
	told          [4]uint64
}

// image writes a database and a log that is not what was written into a directory.
func (l logged) image(t *testing.T, log []byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range map[string][]byte{"dormouse.db": l.database, "dormouse.db-wal": log} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// opens reports whether the store opens with such a log, with all that was told; without the
// last commit, if that may be torn. Else it must be refused as corrupt.
func (l logged) opens(t *testing.T, log []byte, told [4]uint64) bool {
	t.Helper()
	dir := l.image(t, log)
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		if !errors.Is(err, sqlite.ErrCorrupt) || !strings.Contains(err.Error(), "dormouse store rebuild") {
			t.Errorf("open = %v, want ErrCorrupt", err)
		}
		return false
	}
	defer shut(t, s)
	for i, seq := range told {
		checkLog(t, s, sessionID(i), seq)
	}
	return true
}

// last is where the last transaction of the log begins, and ends.
func (l logged) last(t *testing.T) (from, to int) {
	t.Helper()
	salts := l.log[16:24]
	for at := logHeader; at+frameSize <= len(l.log) && string(l.log[at+8:at+16]) == string(salts); at += frameSize {
		if binary.BigEndian.Uint32(l.log[at+frameCommit:]) != 0 {
			from, to = to, at+frameSize
		}
	}
	if from == 0 {
		t.Fatal("the log has no two commits")
	}
	return from, to
}

// logs makes logs of several commits: one that nothing is behind, one that has frames of an
// earlier log behind it, and one that has those of a transaction that was rolled back.
func logs(t *testing.T) map[string]logged {
	t.Helper()
	all := make(map[string]logged)
	for name, before := range map[string][]string{
		"new": nil,
		"begun anew": {
			`CREATE TABLE scratch (text TEXT)`,
			`WITH n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n WHERE i < 100) INSERT INTO scratch SELECT hex(randomblob(2000)) FROM n`,
			`PRAGMA wal_checkpoint(RESTART)`,
		},
		"rolled back": {
			`CREATE TABLE scratch (text TEXT)`, `PRAGMA cache_size = 5`, `PRAGMA cache_spill = 1`, `BEGIN IMMEDIATE`,
			`WITH n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n WHERE i < 100) INSERT INTO scratch SELECT hex(randomblob(2000)) FROM n`,
			`ROLLBACK`,
		},
	} {
		dir := t.TempDir()
		s := open(t, dir)
		if before != nil {
			db := raw(t, dir)
			db.SetMaxOpenConns(1)
			for _, text := range append([]string{`PRAGMA busy_timeout = 5000`}, before...) {
				if _, err := db.ExecContext(t.Context(), text); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var l logged
		var writers [len(l.told)]*writer
		for i := range writers {
			writers[i] = create(t, s, sessionID(i))
		}
		for n, w := range writers {
			b := w.batch(1 + n)
			b.Events[0].Payload = []byte(fmt.Sprintf("%q", strings.Repeat("long ", 400*n)))
			if err := w.add(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			l.told[n] = w.index.Seq
		}
		var err error
		if l.database, err = os.ReadFile(filepath.Join(dir, "dormouse.db")); err != nil {
			t.Fatal(err)
		}
		if l.log, err = os.ReadFile(filepath.Join(dir, "dormouse.db-wal")); err != nil {
			t.Fatal(err)
		}
		shut(t, s)
		if _, to := l.last(t); name != "new" && len(l.log) < to+10*frameSize {
			t.Fatalf("nothing is behind the log %q: %d, %d", name, to, len(l.log))
		}
		all[name] = l
	}
	return all
}

// A flipped bit takes no commit back that was acknowledged: the server does not start.
func TestAFlippedBitOfTheWriteAheadLogTakesBackNoCommit(t *testing.T) {
	for name, l := range logs(t) {
		t.Run(name, func(t *testing.T) {
			if !l.opens(t, l.log, l.told) {
				t.Fatal("the log is refused as it was written")
			}
			var bits []int // that flip
			for i := 0; i < logHeader*8; i += 5 {
				bits = append(bits, i)
			}
			last, end := l.last(t)
			for at := logHeader; at < end; at += frameSize {
				switch {
				case at+frameSize == end: // behind it is nothing that would tell of it
					for i := 0; i < frameHeader*8; i += 3 {
						bits = append(bits, at*8+i)
					}
				case at < last && at/frameSize%20 > 0:
					continue
				}
				for n, i := range []int{0, 3, 4, 6, 7, 8, 11, 12, 15, 16, 19, 20, 23, 24, 31, 90, 1000, 2047, 3333, frameSize - 4, frameSize - 1} {
					bits = append(bits, (at+i)*8+(n+at)%8)
				}
			}
			refused := 0
			for _, bit := range bits {
				log := append([]byte(nil), l.log...)
				log[bit/8] ^= 1 << (bit % 8)
				if !l.opens(t, log, l.told) {
					refused++
				}
				if t.Failed() {
					t.Fatalf("with bit %d of byte %d flipped, of frame %d", bit%8, bit/8, (bit/8-logHeader)/frameSize)
				}
			}
			if refused < len(bits)*9/10 {
				t.Errorf("%d of %d are refused", refused, len(bits))
			}
		})
	}
}

// More than a bit is refused where commits are behind it.
func TestAHoleInTheWriteAheadLogIsRefused(t *testing.T) {
	for name, l := range logs(t) {
		t.Run(name, func(t *testing.T) {
			last, _ := l.last(t)
			for from := 0; from < last-2*frameSize; from += 7 * 512 {
				for _, size := range []int{512, 4096} {
					log := append([]byte(nil), l.log...)
					clear(log[from : from+size])
					if l.opens(t, log, l.told); t.Failed() {
						t.Fatalf("without bytes %d to %d of %d", from, from+size, last)
					}
				}
			}
		})
	}
}

// What a power cut leaves of the last transaction is no reason not to start.
func TestATransactionThatAPowerCutHasTornIsNoHole(t *testing.T) {
	for name, l := range logs(t) {
		t.Run(name, func(t *testing.T) {
			from, to := l.last(t)
			acknowledged := l.told
			acknowledged[len(acknowledged)-1] = 1 // the last one was not acknowledged
			check := func(what string, log []byte) {
				t.Helper()
				if !l.opens(t, log, acknowledged) || t.Failed() {
					t.Fatalf("%s: refused, or not all is there", what)
				}
			}
			for at := from; at <= to; at += 1000 {
				check(fmt.Sprintf("ends at %d", at), l.log[:at])
			}
			for at := from - from%512 + 512; at+512 <= to; at += 3 * 512 {
				for lost := 1; lost <= 64; lost *= 8 {
					log := append([]byte(nil), l.log...)
					clear(log[at:min(at+lost*512, to)])
					check(fmt.Sprintf("%d sectors from %d on", lost, at), log)
				}
			}
		})
	}
}

// A power cut may write the first sector of a frame's header, with the salts, and not the one
// with its checksum, which is then that of the frame an earlier log has left there: the rest of
// that log goes on from it. No commit is lost with that.
func TestATransactionThatIsTornInTheHeaderOfAFrameIsNoHole(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	db := raw(t, dir)
	db.SetMaxOpenConns(1)
	read := func() []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "dormouse.db-wal"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	run := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if _, err := db.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
	const fill = `WITH n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n WHERE i < 100) INSERT INTO scratch SELECT hex(randomblob(2000)) FROM n`
	run(`PRAGMA busy_timeout = 5000`, `PRAGMA wal_autocheckpoint = 0`, `CREATE TABLE scratch (text TEXT)`, fill, `DELETE FROM scratch`, fill, `DELETE FROM scratch`)
	before := read()
	run(`PRAGMA wal_checkpoint(RESTART)`)
	w := create(t, s, sessionID(0))
	acknowledged := read()
	run(fill) // the transaction that the power cut meets
	l := logged{log: read()}
	var err error
	if l.database, err = os.ReadFile(filepath.Join(dir, "dormouse.db")); err != nil {
		t.Fatal(err)
	}
	run(`DROP TABLE scratch`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	torn := 0
	for at := logHeader; at+frameSize <= len(before); at += frameSize {
		const salts = 16 // are the end of what is written
		if (at+salts)%512 != 0 || string(l.log[at:at+frameSize]) == string(acknowledged[at:at+frameSize]) {
			continue
		}
		log := append([]byte(nil), before...)
		copy(log, l.log[:at+salts])
		torn++
		again, err := sqlite.Open(t.Context(), l.image(t, log), sqlite.Options{})
		if err != nil {
			t.Fatalf("torn at byte %d: %v", at+salts, err)
		}
		checkLog(t, again, w.index.Session, w.index.Seq)
		shut(t, again)
	}
	if torn == 0 {
		t.Fatal("no frame's header is in two sectors")
	}
}

// salvaged makes a new database of one with such a log, which must then open, and returns
// what it says is lost. What it does not name is there.
func (l logged) salvaged(t *testing.T, log []byte) (lost string) {
	t.Helper()
	dir := l.image(t, log)
	s, err := sqlite.NewSalvage(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lost = strings.Join(s.Lost, "; ")
	if err := s.Replace(); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{"dormouse.db-corrupt-*": string(l.database), "dormouse.db-log-corrupt-*": string(log)} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s is %v, %v", pattern, found, err)
		}
		if b, err := os.ReadFile(found[0]); err != nil || string(b) != want {
			t.Errorf("%s is not what there was: %v", pattern, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 4 { // and the lock
		t.Errorf("left are %v", left)
	}
	again := open(t, dir)
	defer shut(t, again)
	for i, seq := range l.told {
		if events, err := again.Read(t.Context(), sessionID(i), 0, 99); lost == "" && (err != nil || uint64(len(events)) != seq) {
			t.Errorf("%s has %d events, %v; was told of %d, and nothing is lost", sessionID(i), len(events), err, seq)
		}
	}
	return lost
}

// A salvage reads the commits behind a hole, and names what is lost in it.
func TestASalvageReadsWhatIsBehindAHole(t *testing.T) {
	for name, l := range logs(t) {
		t.Run(name, func(t *testing.T) {
			last, end := l.last(t)
			var named, all int
			for _, at := range []int{0, 7, 11, 17, 20, 26, 31, logHeader + 9, last - 12, last - frameSize, last - frameSize + 5, last - 3*frameSize + 17, last - 2*frameSize + 100, last + 2000, end - 3000} {
				log := append([]byte(nil), l.log...)
				log[at] ^= 2
				if lost := l.salvaged(t, log); lost != "" {
					t.Errorf("with byte %d flipped: %s", at, lost)
				}
			}
			for at := last - 8*frameSize; at < last-frameSize; at += 2 * 4096 {
				log := append([]byte(nil), l.log...)
				clear(log[at : at+4096])
				if all++; l.salvaged(t, log) != "" {
					named++
				}
			}
			t.Logf("of %d holes %d have lost something", all, named)
			log := append([]byte(nil), l.log...)
			clear(log[:4096])
			if lost := l.salvaged(t, log); !strings.Contains(lost, "documents (agents, environments)") {
				t.Errorf("without a header: %q", lost)
			}
		})
	}
}

// A salvage takes no commit of an earlier log for one of the present: where the last frame is
// torn in its header, what is behind it goes on from the checksum that is left there.
func TestASalvageTakesNothingOfAnEarlierLog(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	w := create(t, s, sessionID(0))
	db := raw(t, dir)
	db.SetMaxOpenConns(1)
	read := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	run := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if _, err := db.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
	add := func(n int) {
		t.Helper()
		for range n {
			if err := w.add(t.Context(), w.batch(1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const fill = `WITH n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n WHERE i < 100) INSERT INTO scratch SELECT hex(randomblob(2000)) FROM n`
	run(`PRAGMA busy_timeout = 5000`, `PRAGMA wal_autocheckpoint = 0`, `CREATE TABLE scratch (text TEXT)`, fill, `DELETE FROM scratch`)
	add(1)
	before := read("dormouse.db-wal")
	run(`PRAGMA wal_checkpoint(RESTART)`)
	add(3)
	run(fill)
	l := logged{database: read("dormouse.db"), log: read("dormouse.db-wal")}
	run(`DROP TABLE scratch`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	const frame, salts = 62, 16 // its header is in two sectors
	torn := append([]byte(nil), before...)
	copy(torn, l.log[:logHeader+frame*frameSize+salts])
	for _, bit := range []byte{0, 4} {
		torn[logHeader+frameHeader+100] ^= bit
		at := l.image(t, torn)
		salvage, err := sqlite.NewSalvage(t.Context(), at, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(salvage.Lost) > 0 {
			t.Errorf("with bits %b flipped it has lost %q", bit, salvage.Lost)
		}
		if err := salvage.Replace(); err != nil {
			t.Fatal(err)
		}
		again := open(t, at)
		checkLog(t, again, w.index.Session, w.index.Seq)
		shut(t, again)
	}
}

// A kill while the new database is put in place leaves the old one's log beside nothing.
func TestADatabaseThatWasAboutToBePutInPlaceIs(t *testing.T) {
	l := logs(t)["new"]
	made := t.TempDir()
	s := open(t, made)
	w := create(t, s, sessionID(7))
	shut(t, s)
	for _, step := range []string{"ready", "without the log", "in place"} {
		log := append([]byte(nil), l.log...)
		log[logHeader+100] ^= 1
		dir := l.image(t, log)
		ready := filepath.Join(dir, "dormouse.db-ready")
		if err := os.Mkdir(ready, 0o700); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(ready, "dormouse.db")
		if step != "ready" {
			if err := os.Remove(filepath.Join(dir, "dormouse.db-wal")); err != nil {
				t.Fatal(err)
			}
		}
		if step == "in place" {
			to = filepath.Join(dir, "dormouse.db")
		}
		copyFile(t, filepath.Join(made, "dormouse.db"), to)
		again := open(t, dir)
		checkLog(t, again, w.index.Session, 1)
		shut(t, again)
		if left, _ := filepath.Glob(filepath.Join(dir, "dormouse.db-*")); len(left) > 0 {
			t.Errorf("%s: left are %v", step, left)
		}
	}
}
