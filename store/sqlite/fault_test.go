package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

// child names the data directory of a process this test binary starts of
// itself to kill it.
const child = "DORMOUSE_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(child); dir != "" {
		os.Exit(appendForEver(dir))
	}
	os.Exit(m.Run())
}

// appendForEver prints every seq it was told is stored.
func appendForEver(dir string) int {
	err := func() error {
		ctx := context.Background()
		s, err := sqlite.Open(ctx, dir, sqlite.Options{})
		if err != nil {
			return err
		}
		var running sync.WaitGroup
		defer running.Wait()
		for i := range 8 {
			w := &writer{store: s, index: dormouse.SessionRow{Session: sessionID(i), Created: start}}
			if err := s.Create(ctx, w.batch(1)); err != nil {
				return err
			}
			w.index.Seq = 1
			if w.epoch, err = s.Claim(ctx, sessionID(i), 0); err != nil {
				return err
			}
			running.Go(func() {
				for w.add(ctx, w.batch(1)) == nil {
					fmt.Printf("%d %d\n", i, w.index.Seq)
				}
			})
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startChild runs appendForEver on dir until its first answer.
func startChild(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the other process stored nothing")
	}
	return cmd, lines
}

func TestASecondProcessIsRefusedUntilTheFirstIsGone(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := startChild(t, dir)
	_, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if !errors.Is(err, sqlite.ErrLocked) {
		t.Fatalf("open = %v, want ErrLocked", err)
	}
	for _, want := range []string{dir, fmt.Sprintf("process %d", cmd.Process.Pid)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	s := open(t, dir)
	if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); !errors.Is(err, sqlite.ErrLocked) {
		t.Errorf("open twice in one process = %v, want ErrLocked", err)
	}
	shut(t, s)
}

func TestALockThatOutlivesItsHolderForAnInstantIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	dead := exec.CommandContext(t.Context(), "true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	// What a killed server leaves: its pid, and a lock that a process it was about to
	// start has not released yet.
	f, err := os.OpenFile(filepath.Join(dir, "dormouse.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(f, dead.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = f.Close() })
	shut(t, open(t, dir))
}

func TestWhoFindsTheDirectoryHeldByAStoppedServerIsToldSoAndEndsNobody(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := startChild(t, dir)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("process %d, which is stopped", cmd.Process.Pid)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) { // a signal takes a moment
		_, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
		if !errors.Is(err, sqlite.ErrLocked) {
			t.Fatalf("open = %v, want ErrLocked", err)
		}
		if strings.Contains(err.Error(), want) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("open = %v, want it to say %q", err, want)
		}
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the server that was stopped was ended: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// Another process that has the database open keeps alive what the dead writer claimed
// about how much of the log is in the database, so a server waits until that process
// closes it.
func TestADatabaseThatSomebodyReadsIsNotBelieved(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := startChild(t, dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	f, err := os.OpenFile(filepath.Join(dir, "dormouse.db-shm"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	// As SQLite holds it, but of the descriptor and not of this process.
	reading := unix.Flock_t{Type: unix.F_RDLCK, Start: 128, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &reading); err != nil {
		t.Fatal(err)
	}
	hasty, leave := context.WithCancel(t.Context())
	leave()
	if s, err := sqlite.Open(hasty, dir, sqlite.Options{}); !errors.Is(err, sqlite.ErrLocked) {
		t.Errorf("open = %v, %v, want ErrLocked", s, err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = f.Close() })
	shut(t, open(t, dir))
}

func TestWhatAppendReturnedNilForMustSurviveAKill(t *testing.T) {
	for range 5 {
		dir := t.TempDir()
		cmd, lines := startChild(t, dir)
		time.AfterFunc(50*time.Millisecond, func() { _ = cmd.Process.Kill() })
		var told [8]uint64
		for lines.Scan() {
			var session int
			var seq uint64
			if _, err := fmt.Sscan(lines.Text(), &session, &seq); err == nil && session < len(told) {
				told[session] = seq
			}
		}
		_ = cmd.Wait()
		s := open(t, dir)
		for i, seq := range told {
			checkLog(t, s, sessionID(i), seq)
		}
		shut(t, s)
	}
}

// checkLog fails unless the log has at least seq events, no gap, and an index row
// that agrees.
func checkLog(t *testing.T, s *sqlite.Store, id dormouse.SessionID, seq uint64) {
	t.Helper()
	index, err := s.Session(t.Context(), id)
	if err != nil {
		if seq > 0 || !errors.Is(err, dormouse.ErrNotFound) {
			t.Error(err)
		}
		return
	}
	events, err := s.Read(t.Context(), id, 0, 1<<20)
	if err != nil {
		t.Error(err)
	}
	if index.Seq < seq || index.Seq != uint64(len(events)) {
		t.Errorf("%s: %d events, index at %d, told %d", id, len(events), index.Seq, seq)
	}
	for i, e := range events {
		if e.Seq != uint64(i)+1 {
			t.Errorf("%s: event %d has seq %d", id, i, e.Seq)
		}
	}
}

// A copy of the files in the middle of a write is what a disk may hold after a
// crash, the end of the log torn. An open read keeps the log from being begun
// anew between the two copies, which no crash could show.
func TestAnImageTakenWhileWritingIsWhole(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer shut(t, s)
	var writers [16]*writer
	for i := range writers {
		writers[i] = create(t, s, sessionID(i))
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	for _, w := range writers {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := w.add(t.Context(), w.batch(3)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	db := raw(t, dir)
	for range 5 {
		var told [len(writers)]uint64
		for i := range told {
			index, err := s.Session(t.Context(), sessionID(i))
			if err != nil {
				t.Fatal(err)
			}
			told[i] = index.Seq
		}
		image := t.TempDir()
		reading, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := reading.QueryRowContext(t.Context(), `SELECT count(*) FROM sessions`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		copyFile(t, filepath.Join(dir, "dormouse.db"), filepath.Join(image, "dormouse.db"))
		copyFile(t, filepath.Join(dir, "dormouse.db-wal"), filepath.Join(image, "dormouse.db-wal"))
		if err := reading.Rollback(); err != nil {
			t.Fatal(err)
		}
		c := open(t, image)
		for i, seq := range told {
			checkLog(t, c, sessionID(i), seq)
		}
		shut(t, c)
	}
	close(stop)
	running.Wait()
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAppendMustRefuseAFullDiskWithErrFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, dir)
	w, other := create(t, s, sessionID(1)), create(t, s, sessionID(2))
	filler := filepath.Join(dir, "filler")
	for round := range 3 {
		fill(t, filler)
		full := 0
		for range 200 { // until what was reserved is used up
			b := w.batch(1)
			b.Events[0].Payload = payload
			err := w.add(t.Context(), b)
			if errors.Is(err, dormouse.ErrFull) {
				full++
				continue
			}
			if err != nil {
				t.Fatalf("append to a full disk = %v, want ErrFull", err)
			}
		}
		if full == 0 {
			t.Fatal("the disk was never full")
		}
		if err := s.Check(t.Context()); !errors.Is(err, dormouse.ErrFull) {
			t.Errorf("check of a full disk = %v, want ErrFull", err)
		}
		checkLog(t, s, sessionID(1), w.index.Seq)
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		// Room is back, and nothing has to be restarted.
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("check with room again: %v", err)
		}
		for _, w := range []*writer{w, other} {
			if err := w.add(t.Context(), w.batch(1)); err != nil {
				t.Errorf("round %d, append with room again: %v", round, err)
			}
		}
	}
	select {
	case err := <-s.Failed():
		t.Errorf("a full disk is no failure, but: %v", err)
	default:
	}
	shut(t, s)
	s = open(t, dir)
	checkLog(t, s, sessionID(1), w.index.Seq)
	checkLog(t, s, sessionID(2), other.index.Seq)
	shut(t, s)
}

// fill writes until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	f.Close()
}

// A limit on the size of files makes the write of a commit fail the way a
// broken disk does.
func TestADiskThatFailsACommitStopsTheStore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	w := create(t, s, sessionID(1))
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	info, err := os.Stat(filepath.Join(dir, "dormouse.db-wal"))
	if err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = uint64(info.Size()) + 100
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &low); err != nil {
		t.Fatal(err)
	}
	b := w.batch(1)
	b.Events[0].Payload = []byte(strconv.Quote(strings.Repeat("x", 1<<16)))
	err = w.add(t.Context(), b)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, dormouse.ErrUnknownOutcome) {
		t.Errorf("append = %v, want ErrUnknownOutcome", err)
	}
	select {
	case err := <-s.Failed():
		t.Logf("failed: %v", err)
	default:
		t.Error("nobody was told of the failure")
	}
	if err := w.add(t.Context(), w.batch(1)); err == nil || errors.Is(err, dormouse.ErrUnknownOutcome) {
		t.Errorf("append after the failure = %v, want a plain refusal", err)
	}
	if err := s.Check(t.Context()); err == nil {
		t.Error("check after the failure says that all is well")
	}
	if err := s.Close(); err == nil {
		t.Error("closing says that all is well")
	}
	// What the next process finds is whole.
	image := t.TempDir()
	copyFile(t, filepath.Join(dir, "dormouse.db"), filepath.Join(image, "dormouse.db"))
	copyFile(t, filepath.Join(dir, "dormouse.db-wal"), filepath.Join(image, "dormouse.db-wal"))
	c := open(t, image)
	checkLog(t, c, sessionID(1), 1)
	shut(t, c)
}
