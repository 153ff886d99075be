// Package coverage writes down which routes and which events of the official
// description a server implements.
package coverage

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse/e2e/v1/schema"
	"github.com/dormouse-run/dormouse/e2e/v1/site"
)

// Has says how much of something there is.
type Has string

// The degrees.
const (
	Seen   Has = "served, and seen in the run"
	Served Has = "served"
	Gap    Has = "gap"
)

// Row is one route or one type of event.
type Row struct {
	Family, Name string
	Has          Has
}

// Table is what of the API there is.
type Table struct {
	Routes, Events []Row
	// Refused are the requests to routes that are served which the SDK's own tests
	// make and the server does not take, and why.
	Refused []Refusal
}

// Refusal is a request that was not taken.
type Refusal struct{ Test, Why string }

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// Take compares the description with what was seen. Of what was not, the server
// is asked: with a method that no route has it tells which there are.
func Take(ctx context.Context, spec *schema.Spec, seen *schema.Report, s *site.Site) (Table, error) {
	var t Table
	for _, op := range spec.Operations() {
		row := Row{Family: op.Family(), Name: op.String(), Has: Seen}
		if !seen.Served(op.String()) {
			served, err := asks(ctx, s, op)
			if err != nil {
				return Table{}, err
			}
			if row.Has = Gap; served {
				row.Has = Served
			}
		}
		t.Routes = append(t.Routes, row)
	}
	for _, kind := range spec.EventTypes() {
		row := Row{Family: strings.Split(kind, ".")[0], Name: kind, Has: Gap}
		if seen.Seen(kind) > 0 {
			row.Has = Seen
		}
		t.Events = append(t.Events, row)
	}
	return t, nil
}

// asks reports whether the server has a route.
func asks(ctx context.Context, s *site.Site, op *schema.Operation) (bool, error) {
	l, err := s.Live(ctx)
	if err != nil {
		return false, err
	}
	path := parameter.ReplaceAllString(op.Path, "x")
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, "http://"+l.Addr()+path, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("X-Api-Key", s.Token())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		return false, nil
	}
	return slices.Contains(strings.Split(strings.ReplaceAll(res.Header.Get("Allow"), " ", ""), ","), op.Method), nil
}

func count(rows []Row, h Has) int {
	n := 0
	for _, r := range rows {
		if r.Has == h {
			n++
		}
	}
	return n
}

// Summary is the line that a run ends with.
func (t Table) Summary() string {
	return fmt.Sprintf("coverage: routes=%d seen=%d served=%d gaps=%d; events=%d seen=%d gaps=%d",
		len(t.Routes), count(t.Routes, Seen), count(t.Routes, Served), count(t.Routes, Gap),
		len(t.Events), count(t.Events, Seen), count(t.Events, Gap))
}

// Markdown is the document.
func (t Table) Markdown() string {
	var b strings.Builder
	b.WriteString(`# What of the Managed Agents API there is

` + "`make v1`" + ` writes this from the official description and from what it saw: programs with the
official SDKs of both generations, the tests that the Go SDK has for its own resources, and what
hostile clients and killed servers are tried with. A route that is *served, and seen in the run* gave
an answer that is as described; one that is *served* is there and was not part of the run; a *gap*
answers 404, or 405 where the path has another method. Events that are a gap never come.

`)
	fmt.Fprintf(&b, "Of %d routes %d were seen, %d more are served, %d are gaps. Of %d types of event %d were seen.\n",
		len(t.Routes), count(t.Routes, Seen), count(t.Routes, Served), count(t.Routes, Gap), len(t.Events), count(t.Events, Seen))
	table(&b, "Routes", "route", t.Routes)
	table(&b, "Events", "type", t.Events)
	b.WriteString(`
## Requests

Of the tests that the Go SDK has for what is served, these are refused. All others have their answer.

| test | answer |
|---|---|
`)
	for _, r := range t.Refused {
		fmt.Fprintf(&b, "| `%s` | %s |\n", r.Test, r.Why)
	}
	return b.String()
}

func table(b *strings.Builder, title, what string, rows []Row) {
	fmt.Fprintf(b, "\n## %s\n\n| %s | |\n|---|---|\n", title, what)
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, c Row) int { return strings.Compare(a.Family, c.Family) })
	for _, r := range rows {
		fmt.Fprintf(b, "| `%s` | %s |\n", r.Name, r.Has)
	}
}
