package catalog

import (
	"time"

	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// CredentialUpdate is what is to change of a credential: what is left out stays, and so
// does a secret that is null.
type CredentialUpdate struct {
	Auth        closedjson.Omittable[AuthUpdate]   `json:"auth"`
	DisplayName closedjson.Optional[string]        `json:"display_name"`
	Metadata    closedjson.Optional[MetadataPatch] `json:"metadata"`
}

// AuthUpdate changes secrets, and what is not the credential's key.
type AuthUpdate struct {
	oauth    *oauthUpdate
	bearer   *bearerUpdate
	variable *variableUpdate
}

type (
	bearerUpdate struct {
		Type  string                          `json:"type"`
		Token closedjson.Optional[secretText] `json:"token"`
	}
	oauthUpdate struct {
		Type        string                             `json:"type"`
		AccessToken closedjson.Optional[secretText]    `json:"access_token"`
		Expires     closedjson.Optional[string]        `json:"expires_at"`
		Refresh     closedjson.Optional[refreshUpdate] `json:"refresh"`
	}
	refreshUpdate struct {
		RefreshToken closedjson.Optional[secretText]      `json:"refresh_token"`
		Scope        closedjson.Optional[string]          `json:"scope"`
		EndpointAuth closedjson.Omittable[endpointUpdate] `json:"token_endpoint_auth"`
	}
	variableUpdate struct {
		Type       string                                `json:"type"`
		Value      closedjson.Optional[secretText]       `json:"secret_value"`
		Networking closedjson.Optional[scopeParams]      `json:"networking"`
		Injection  closedjson.Omittable[injectionParams] `json:"injection_location"`
	}
)

// endpointUpdate is a new client secret. How the endpoint knows its client does not change,
// whichever of the two types that have a secret is named.
type endpointUpdate struct {
	Secret closedjson.Optional[secretText]
}

// DecodeJSON implements closedjson.Decoder.
func (u *AuthUpdate) DecodeJSON(raw []byte) error {
	kind, err := oneOf(raw, typeOAuth, typeBearer, typeVariable)
	if err != nil {
		return err
	}
	switch kind {
	case typeOAuth:
		u.oauth = new(oauthUpdate)
		return closedjson.Bind(raw, u.oauth)
	case typeBearer:
		u.bearer = new(bearerUpdate)
		return closedjson.Bind(raw, u.bearer)
	}
	u.variable = new(variableUpdate)
	return closedjson.Bind(raw, u.variable)
}

// DecodeJSON implements closedjson.Decoder.
func (u *endpointUpdate) DecodeJSON(raw []byte) error {
	if _, err := oneOf(raw, endpointBasic, endpointPost); err != nil {
		return err
	}
	var object struct {
		Typed
		Secret closedjson.Optional[secretText] `json:"client_secret"`
	}
	err := closedjson.Bind(raw, &object)
	u.Secret = object.Secret
	return err
}

// apply is what a credential is for after a change, and the secrets that are new.
func (u AuthUpdate) apply(was Auth, now time.Time) (Auth, secrets, error) {
	switch {
	case u.bearer != nil && was.Bearer != nil:
		fresh := secrets{}
		return was, fresh, fresh.put(fieldToken, "auth.token", u.bearer.Token, maxToken, true)
	case u.oauth != nil && was.OAuth != nil:
		return u.oauth.apply(*was.OAuth, now)
	case u.variable != nil && was.Variable != nil:
		return u.variable.apply(*was.Variable)
	}
	return was, nil, invalidf("auth.type", "is %s and cannot become another", was.Kind())
}

// put adds a secret that was given.
func (s secrets) put(field, path string, o closedjson.Optional[secretText], most int, printable bool) error {
	if !o.Given() {
		return nil
	}
	s[field] = o.Value
	return o.Value.check(path, most, printable)
}

func (u *oauthUpdate) apply(a OAuth, now time.Time) (Auth, secrets, error) {
	fresh := secrets{}
	if err := fresh.put(fieldAccessToken, "auth.access_token", u.AccessToken, maxToken, true); err != nil {
		return Auth{}, nil, err
	}
	switch {
	case u.Expires.Null:
		a.Expires = nil
	case u.Expires.Set:
		at, err := parseExpiry(u.Expires.Value, now)
		if err != nil {
			return Auth{}, nil, err
		}
		a.Expires = &at
	}
	if u.Refresh.Given() {
		if a.Refresh == nil {
			return Auth{}, nil, invalidf("auth.refresh", "the credential has none, and an update cannot add one; create another credential")
		}
		r := *a.Refresh
		if err := u.Refresh.Value.apply(&r, fresh); err != nil {
			return Auth{}, nil, err
		}
		a.Refresh = &r
	}
	return Auth{OAuth: &a}, fresh, nil
}

func (u refreshUpdate) apply(r *Refresh, fresh secrets) error {
	const path = "auth.refresh"
	if err := fresh.put(fieldRefreshToken, path+".refresh_token", u.RefreshToken, maxToken, false); err != nil {
		return err
	}
	if u.Scope.Given() {
		if err := checkLength(path+".scope", u.Scope.Value, 0, maxToken); err != nil {
			return err
		}
		r.Scope = orNil(u.Scope.Value)
	}
	if !u.EndpointAuth.Set {
		return nil
	}
	if r.EndpointAuth.Type == endpointNone {
		return invalidf(path+".token_endpoint_auth", "the token endpoint takes no client secret; create another credential")
	}
	return fresh.put(fieldClientSecret, path+".token_endpoint_auth.client_secret", u.EndpointAuth.Value.Secret, maxClientSecret, false)
}

func (u *variableUpdate) apply(v Variable) (Auth, secrets, error) {
	fresh := secrets{}
	if err := fresh.put(fieldSecretValue, "auth.secret_value", u.Value, maxSecretValue, true); err != nil {
		return Auth{}, nil, err
	}
	if u.Networking.Given() {
		v.Networking = u.Networking.Value.HostScope
		if err := v.Networking.check(); err != nil {
			return Auth{}, nil, err
		}
	}
	var err error
	if u.Injection.Set {
		v.Injection, err = u.Injection.Value.resolve(v.Injection)
	}
	return Auth{Variable: &v}, fresh, err
}
