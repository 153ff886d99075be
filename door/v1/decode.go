package v1

import (
	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// maxBody bounds a request's body.
const maxBody = 32 << 20

// decode reads the body into v, which points to a struct of the fields that may
// be there. Those that may be left out are closedjson.Optional.
func (c call) decode(v any) error {
	_, err := c.decodeBody(v)
	return err
}

// decodeBody is decode, and returns what was read.
func (c call) decodeBody(v any) ([]byte, error) {
	c.ReadsBody(v)
	body, err := c.ReadBody(maxBody)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, invalidf("the body is empty; send a JSON object")
	}
	if !door.IsJSON(c.R.Header) {
		return nil, invalidf("send the body as content-type: application/json, not compressed")
	}
	if err := closedjson.Unmarshal(body, v); err != nil {
		return nil, invalidf("%s", err)
	}
	return body, nil
}

// maxKey bounds a client's name for a request.
const maxKey = 255

// key is what the client calls this request, so that sent again it is the same one;
// empty if it does not say.
func (c call) key() (string, error) {
	all := c.R.Header.Values("Idempotency-Key")
	switch {
	case len(all) == 0:
		return "", nil
	case len(all) > 1 || all[0] == "" || len(all[0]) > maxKey || dormouse.ValidateText(all[0]) != nil:
		return "", invalidf("idempotency-key: must be one text of 1 to %d bytes", maxKey)
	}
	return all[0], nil
}

// nothing refuses a body where the API has none.
func (c call) nothing() error {
	body, err := c.ReadBody(maxBody)
	if err != nil || len(body) == 0 {
		return err
	}
	if err := closedjson.Unmarshal(body, new(struct{})); err != nil {
		return invalidf("%s", err)
	}
	return nil
}
