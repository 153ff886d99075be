package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/transfer/transfertest"
)

func TestADamagedArchiveChangesNothing(t *testing.T) {
	old, file, data := transfertest.OldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
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
		d := transfertest.Open(t, data)
		if all := transfertest.Contents(t, d); len(all) != 0 {
			t.Errorf("%s: %d sessions were written", name, len(all))
		}
		if err := d.Store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnotherHistoryIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	old, file := transfertest.OldData(t), filepath.Join(t.TempDir(), "archive")
	storeCommand(t, 0, old, "export", file)
	for name, c := range map[string]struct {
		live func(p *transfertest.Past, data string) // what the target has lived through
		want string
	}{
		"a session of the same name": {func(p *transfertest.Past, _ string) {
			p.Create(transfertest.Ended)
			for range 5 {
				p.Claim()
			}
			p.Do(law.Terminate{Reason: "another"})
		}, "another one here"},
		"the same session, gone on": {func(p *transfertest.Past, data string) {
			storeCommand(t, 0, data, "import", file)
			p.Deployment = transfertest.Open(t, data)
			p.ID, p.State = transfertest.Working, law.State{}
			p.Claim()
			for _, e := range transfertest.Log(t, p.Deployment, transfertest.Working) {
				p.State = law.Apply(p.State, e)
			}
			p.Do(law.Recover{})
		}, "it has gone on here"},
		"another version of a document": {func(p *transfertest.Past, _ string) {
			p.Configure()
			d, err := p.Store.Document(t.Context(), store.DocumentRef{Tenant: "local", Kind: "agent", ID: "agent_1"})
			if err != nil {
				t.Fatal(err)
			}
			d.Version++
			if err := p.Store.Replace(t.Context(), d, true); err != nil {
				t.Fatal(err)
			}
		}, "agent agent_1: it is another one here"},
		"another past of a document": {func(p *transfertest.Past, _ string) {
			p.Configure()
			ref := store.DocumentRef{Tenant: "local", Kind: "agent", ID: "agent_1"}
			d, err := p.Store.Document(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(p.Store.Remove(t.Context(), ref), p.Store.Insert(t.Context(), d)); err != nil {
				t.Fatal(err)
			}
		}, "agent agent_1: it is another one here"},
		"a document of the same name": {func(p *transfertest.Past, _ string) {
			now := time.Now().UTC()
			err := p.Store.Insert(t.Context(), store.Document{
				Tenant: "local", Kind: "environment", ID: "env_2", Name: "production", Version: 1, Created: now, Updated: now, Archived: now, Body: []byte(`{}`),
			})
			if err != nil {
				t.Fatal(err)
			}
		}, `environment env_1: environment env_2 is called "production" here, too`},
		"the beginning of it, from before": {func(p *transfertest.Past, _ string) {
			p.Create(transfertest.Long)
		}, "older archive"},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			p := &transfertest.Past{T: t}
			if !strings.Contains(name, "gone on") {
				p.Deployment = transfertest.Open(t, data)
			}
			c.live(p, data)
			before, documents := transfertest.Contents(t, p.Deployment), transfertest.Documents(t, p.Deployment)
			if err := p.Store.Close(); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"import", file, "--check"}, {"import", file}} {
				if _, errs := storeCommand(t, exitError, data, args...); !strings.Contains(errs, c.want) {
					t.Errorf("%v: said %s", args, errs)
				}
			}
			after := transfertest.Open(t, data)
			if diff := cmp.Diff(before, transfertest.Contents(t, after)); diff != "" {
				t.Errorf("a refused import changed (-before +after):\n%s", diff)
			}
			if !reflect.DeepEqual(documents, transfertest.Documents(t, after)) {
				t.Error("a refused import changed documents")
			}
		})
	}
}

// A session whose first words are lost cannot be loaded anywhere. It takes no
// other with it.
func TestASessionThatCannotBeLoadedIsKept(t *testing.T) {
	const mute dormouse.SessionID = "sesn_0mute"
	old, file, data := transfertest.OldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	p := &transfertest.Past{T: t, Deployment: transfertest.Open(t, old), ID: mute}
	p.Do(law.Create{Created: dormouse.Created{
		Session: mute, Tenant: "local", Owner: dormouse.User("local"), Recovery: dormouse.RecoverAuto,
		Agent: dormouse.AgentConfig{Name: "agent", Model: "offline", System: strings.Repeat("be brief ", 10_000)},
	}})
	log := transfertest.Log(t, p.Deployment, mute)
	if err := errors.Join(p.Blobs.Delete(t.Context(), log[0].Blob), p.Store.Close()); err != nil {
		t.Fatal(err)
	}
	storeCommand(t, exitNeedsAttention, old, "export", file)
	for range 2 {
		out, errs := storeCommand(t, exitNeedsAttention, data, "import", file)
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
	if diff := cmp.Diff(log, transfertest.Log(t, transfertest.Open(t, data), mute)); diff != "" {
		t.Errorf("its log (-before +after):\n%s", diff)
	}
}

// The file was written by a program that knew no documents.
func TestAnArchiveOfTheFirstVersionIsRead(t *testing.T) {
	old, data := transfertest.OldData(t), t.TempDir()
	out, _ := storeCommand(t, 0, data, "import", filepath.Join("testdata", "archive-1.dormouse"))
	if !strings.Contains(out, "verified 6 sessions") || !strings.Contains(out, "0 documents") {
		t.Errorf("imported: %s", out)
	}
	is := transfertest.Open(t, data)
	then := transfertest.Contents(t, is)
	for id, digest := range map[dormouse.SessionID]dormouse.Digest{ // of logs as that program wrote them
		"sesn_2long":  "sha256:8de40c6b0fc6101527fdc21474bfb81ef81b4536d6a513599c7902a6359d72d5",
		"sesn_3large": "sha256:14d4d6e0db26c5275300bef14bb027a2d723dc072f9cd6aab3e0a8eb1fb00c6f",
		"sesn_5ended": "sha256:e3b8e4481030e5482d44a479f4b6244254865bd320ffb9f525fc3aac0937b598",
	} {
		if got := then[id].Log; got != digest {
			t.Errorf("the log of %s is %s", id, got)
		}
	}
	words := cmpopts.IgnoreFields(transfertest.Content{}, "Log") // today's program says more in some events
	if diff := cmp.Diff(transfertest.Contents(t, transfertest.Open(t, old)), then, cmpopts.EquateEmpty(), words); diff != "" {
		t.Errorf("sessions (-now +then):\n%s", diff)
	}
	if got := transfertest.Documents(t, is); len(got) != 0 {
		t.Errorf("documents came from nowhere: %v", got)
	}
}

func TestOtherSessionsAreLeftAlone(t *testing.T) {
	old, file, data := transfertest.OldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	storeCommand(t, 0, old, "export", file)
	p := &transfertest.Past{T: t, Deployment: transfertest.Open(t, data)}
	p.Create("sesn_own")
	p.Claim()
	p.Converse(0, "mine")
	own := transfertest.Contents(t, p.Deployment)["sesn_own"]
	if err := p.Store.Close(); err != nil {
		t.Fatal(err)
	}
	storeCommand(t, 0, data, "import", file)
	all := transfertest.Contents(t, transfertest.Open(t, data))
	if diff := cmp.Diff(own, all["sesn_own"]); diff != "" || len(all) != 7 {
		t.Errorf("%d sessions, its own (-before +after):\n%s", len(all), diff)
	}
}
