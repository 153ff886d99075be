package catalog_test

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/store"
)

var errKilled = errors.New("killed")

type documents = catalog.Documents

// mortal is documents of a server that is killed after some writes, or with late in the
// middle of the last: it is made, and the server does not hear of it.
type mortal struct {
	documents
	left int
	late bool
}

func (m *mortal) write(do func() error) error {
	if m.left == 0 {
		return errKilled
	}
	m.left--
	err := do()
	if m.left == 0 && m.late {
		return errKilled
	}
	return err
}

func (m *mortal) Insert(ctx context.Context, d store.Document) error {
	return m.write(func() error { return m.documents.Insert(ctx, d) })
}

func (m *mortal) Replace(ctx context.Context, d store.Document, keep bool) error {
	return m.write(func() error { return m.documents.Replace(ctx, d, keep) })
}

func (m *mortal) Remove(ctx context.Context, ref store.DocumentRef) error {
	return m.write(func() error { return m.documents.Remove(ctx, ref) })
}
