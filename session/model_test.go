package session_test

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/scripted"
)

type oneModel struct {
	m     *scripted.Model
	heard func(model.Request)
	price model.Price
}

func (o oneModel) Price(string) model.Price { return o.price }

func (o oneModel) Model(name string) (model.Model, error) {
	if name != "scripted" {
		return nil, errors.New("there is no model " + name)
	}
	if o.heard == nil {
		return o.m, nil
	}
	return listening{o.m, o.heard}, nil
}

// listening is a model whose requests are looked at.
type listening struct {
	*scripted.Model
	heard func(model.Request)
}

func (l listening) Reply(ctx context.Context, r model.Request, delta func(model.Delta) error) (model.Reply, error) {
	l.heard(r)
	return l.Model.Reply(ctx, r, delta)
}
