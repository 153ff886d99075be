package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/archive"
	"github.com/dormouse-run/dormouse/store/memory"
)

func TestADamagedArchiveChangesNothing(t *testing.T) {
	old, file, data := oldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	storeCommand(t, 0, old, "export", file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() []byte{
		"cut off":   func() []byte { return b[:len(b)-1] },
		"changed":   func() []byte { c := []byte(string(b)); c[len(c)*2/3] ^= 1; return c },
		"no sample": func() []byte { return []byte("no archive at all") },
	} {
		if err := os.WriteFile(file, damage(), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, errs := storeCommand(t, exitError, data, "import", file); !strings.Contains(errs, "import "+file+": ") || !strings.Contains(errs, "archive") {
			t.Errorf("%s: said %s", name, errs)
		}
		d := openData(t, data)
		if all := contents(t, d); len(all) != 0 {
			t.Errorf("%s: %d sessions were written", name, len(all))
		}
		if err := d.store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnotherHistoryIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	old, file := oldData(t), filepath.Join(t.TempDir(), "archive")
	storeCommand(t, 0, old, "export", file)
	for name, c := range map[string]struct {
		live func(p *past) // what the target has lived through
		want string
	}{
		"a session of the same name": {func(p *past) {
			p.create(ended)
			for range 5 {
				p.claim()
			}
			p.do(law.Terminate{Reason: "another"})
		}, "another one here"},
		"the same session, gone on": {func(p *past) {
			storeCommand(t, 0, p.data, "import", file)
			p.deployment = openData(t, p.data)
			p.id, p.state = open1, law.State{}
			p.claim()
			for _, e := range logOf(t, p.deployment, open1) {
				p.state = law.Apply(p.state, e)
			}
			p.do(law.Recover{})
		}, "it has gone on here"},
		"another version of a document": {func(p *past) {
			p.configure()
			d, err := p.store.Document(t.Context(), store.DocumentRef{Tenant: "local", Kind: "agent", ID: "agent_1"})
			if err != nil {
				t.Fatal(err)
			}
			d.Version++
			if err := p.store.Replace(t.Context(), d, true); err != nil {
				t.Fatal(err)
			}
		}, "agent agent_1: it is another one here"},
		"another past of a document": {func(p *past) {
			p.configure()
			ref := store.DocumentRef{Tenant: "local", Kind: "agent", ID: "agent_1"}
			d, err := p.store.Document(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(p.store.Remove(t.Context(), ref), p.store.Insert(t.Context(), d)); err != nil {
				t.Fatal(err)
			}
		}, "agent agent_1: it is another one here"},
		"a document of the same name": {func(p *past) {
			now := time.Now().UTC()
			err := p.store.Insert(t.Context(), store.Document{
				Tenant: "local", Kind: "environment", ID: "env_2", Name: "production", Version: 1, Created: now, Updated: now, Archived: now, Body: []byte(`{}`),
			})
			if err != nil {
				t.Fatal(err)
			}
		}, `environment env_1: environment env_2 is called "production" here, too`},
		"the beginning of it, from before": {func(p *past) {
			p.create(long)
		}, "older archive"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &past{t: t, deployment: &deployment{data: t.TempDir()}}
			if !strings.Contains(name, "gone on") {
				p.deployment = openData(t, p.data)
			}
			c.live(p)
			before, documents := contents(t, p.deployment), configured(t, p.deployment)
			if err := p.store.Close(); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"import", file, "--check"}, {"import", file}} {
				if _, errs := storeCommand(t, exitError, p.data, args...); !strings.Contains(errs, c.want) {
					t.Errorf("%v: said %s", args, errs)
				}
			}
			after := openData(t, p.data)
			if diff := cmp.Diff(before, contents(t, after)); diff != "" {
				t.Errorf("a refused import changed (-before +after):\n%s", diff)
			}
			if !reflect.DeepEqual(documents, configured(t, after)) {
				t.Error("a refused import changed documents")
			}
		})
	}
}

// A session whose first words are lost cannot be loaded anywhere. It takes no
// other with it.
func TestASessionThatCannotBeLoadedIsKept(t *testing.T) {
	const mute dormouse.SessionID = "sesn_0mute"
	old, file, data := oldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	p := &past{t: t, deployment: openData(t, old), id: mute}
	p.do(law.Create{Created: dormouse.Created{
		Session: mute, Tenant: "local", Owner: dormouse.User("local"), Recovery: dormouse.RecoverAuto,
		Agent: dormouse.AgentConfig{Name: "agent", Model: "offline", System: strings.Repeat("be brief ", 10_000)},
	}})
	log := logOf(t, p.deployment, mute)
	if err := errors.Join(p.blobs.Delete(t.Context(), log[0].Blob), p.store.Close()); err != nil {
		t.Fatal(err)
	}
	storeCommand(t, exitSeeTo, old, "export", file)
	for range 2 {
		out, errs := storeCommand(t, exitSeeTo, data, "import", file)
		if !strings.Contains(out, "verified 6 sessions") || !strings.Contains(errs, string(mute)+": is kept and cannot be loaded") {
			t.Errorf("said %s%s", out, errs)
		}
	}
	for dir, why := range map[string]string{old: "cannot be laid out", data: "is not whole"} {
		out, errs := storeCommand(t, exitError, dir, "rebuild", "--check")
		if out != "rebuild: sessions=7 changed=0 failed=1\n" || !strings.Contains(errs, string(mute)+": "+why) {
			t.Errorf("rebuild said %s%s", out, errs)
		}
	}
	if diff := cmp.Diff(log, logOf(t, openData(t, data), mute)); diff != "" {
		t.Errorf("its log (-before +after):\n%s", diff)
	}
}

// The file was written by a program that knew no documents.
func TestAnArchiveOfTheFirstVersionIsRead(t *testing.T) {
	old, data := oldData(t), t.TempDir()
	out, _ := storeCommand(t, 0, data, "import", filepath.Join("testdata", "archive-1.dormouse"))
	if !strings.Contains(out, "verified 6 sessions") || !strings.Contains(out, "0 documents") {
		t.Errorf("imported: %s", out)
	}
	is := openData(t, data)
	then := contents(t, is)
	for id, digest := range map[dormouse.SessionID]dormouse.Digest{ // of logs as that program wrote them
		"sesn_2long":  "sha256:8de40c6b0fc6101527fdc21474bfb81ef81b4536d6a513599c7902a6359d72d5",
		"sesn_3large": "sha256:14d4d6e0db26c5275300bef14bb027a2d723dc072f9cd6aab3e0a8eb1fb00c6f",
		"sesn_5ended": "sha256:e3b8e4481030e5482d44a479f4b6244254865bd320ffb9f525fc3aac0937b598",
	} {
		if got := then[id].Log; got != digest {
			t.Errorf("the log of %s is %s", id, got)
		}
	}
	words := cmpopts.IgnoreFields(content{}, "Log") // today's program says more in some events
	if diff := cmp.Diff(contents(t, openData(t, old)), then, cmpopts.EquateEmpty(), words); diff != "" {
		t.Errorf("sessions (-now +then):\n%s", diff)
	}
	if got := configured(t, is); len(got) != 0 {
		t.Errorf("documents came from nowhere: %v", got)
	}
}

func TestOtherSessionsAreLeftAlone(t *testing.T) {
	old, file, data := oldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	storeCommand(t, 0, old, "export", file)
	p := &past{t: t, deployment: openData(t, data)}
	p.create("sesn_own")
	p.claim()
	p.converse(0, "mine")
	own := contents(t, p.deployment)["sesn_own"]
	if err := p.store.Close(); err != nil {
		t.Fatal(err)
	}
	storeCommand(t, 0, data, "import", file)
	all := contents(t, openData(t, data))
	if diff := cmp.Diff(own, all["sesn_own"]); diff != "" || len(all) != 7 {
		t.Errorf("%d sessions, its own (-before +after):\n%s", len(all), diff)
	}
}

// dying is a store that is gone after so many writes.
type dying struct {
	store.Store
	left int
}

var errDead = errors.New("killed")

func (d *dying) write(do func() error) error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return do()
}

func (d *dying) Import(ctx context.Context, b store.Batch) error {
	return d.write(func() error { return d.Store.Import(ctx, b) })
}

func (d *dying) Append(ctx context.Context, b store.Batch) error {
	return d.write(func() error { return d.Store.Append(ctx, b) })
}

func (d *dying) Rebuild(ctx context.Context, id dormouse.SessionID, rows dormouse.Rows) error {
	return d.write(func() error { return d.Store.Rebuild(ctx, id, rows) })
}

func (d *dying) Carry(ctx context.Context, doc store.Document) error {
	return d.write(func() error { return d.Store.Carry(ctx, doc) })
}

func (d *dying) Insert(ctx context.Context, doc store.Document) error {
	return d.write(func() error { return d.Store.Insert(ctx, doc) })
}

func TestAnImportThatDiesBetweenAnyTwoWritesCompletes(t *testing.T) {
	old, file := oldData(t), filepath.Join(t.TempDir(), "archive")
	storeCommand(t, 0, old, "export", file)
	was := openData(t, old)
	want, documents := contents(t, was), configured(t, was)
	take := func(d *deployment) error {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, err = importArchive(t.Context(), f, d, false, newProgress(&safeBuffer{}))
		return err
	}
	blobs := openData(t, t.TempDir()).blobs
	n := 0
	for died := true; died; n++ {
		d := &deployment{t.TempDir(), new(memory.Store), blobs}
		err := take(&deployment{d.data, &dying{d.store, n}, d.blobs})
		if died = errors.Is(err, errDead); !died && err != nil {
			t.Fatal(err)
		}
		if died {
			half(t, d, want)
			shown := configured(t, d)
			whole := slices.DeleteFunc(slices.Clone(documents), func(v archive.Version) bool {
				return !slices.ContainsFunc(shown, func(s archive.Version) bool { return s.Ref() == v.Ref() })
			})
			if len(shown) != len(whole) || len(shown) > 0 && !reflect.DeepEqual(shown, whole) {
				t.Errorf("after %d writes a document is shown before its past is there", n)
			}
		}
		if err := take(d); err != nil {
			t.Fatalf("after %d writes: %v", n, err)
		}
		if diff := cmp.Diff(want, contents(t, d), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("after %d writes (-want +got):\n%s", n, diff)
		}
		if !reflect.DeepEqual(documents, configured(t, d)) {
			t.Fatalf("after %d writes there are other documents", n)
		}
	}
	if n < 40 {
		t.Errorf("only %d writes", n)
	}
}

// half checks that nothing runs or shows a session that is not all there.
func half(t *testing.T, d *deployment, whole map[dormouse.SessionID]content) {
	t.Helper()
	due, err := d.store.Due(t.Context(), time.Now(), 100)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := d.store.Sessions(t.Context(), store.Query{Tenant: "local", Limit: 100, Archived: true})
	if err != nil {
		t.Fatal(err)
	}
	shown := due
	for _, row := range listed {
		shown = append(shown, row.Session)
	}
	now := contents(t, d)
	for _, id := range shown {
		if diff := cmp.Diff(whole[id], now[id], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s runs or is shown before it is whole (-whole +now):\n%s", id, diff)
		}
	}
	for id, c := range now {
		if !c.Rows.Session.Arriving() {
			continue
		}
		told := ""
		done, err := rebuild(t.Context(), d, false, func(format string, args ...any) { told += fmt.Sprintf(format, args...) })
		if err != nil || done.Failed != 1 || !strings.Contains(told, string(id)+": is not whole") {
			t.Errorf("rebuilt %+v, %v: %s", done, err, told)
		}
	}
}
