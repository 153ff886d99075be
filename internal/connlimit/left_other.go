//go:build !linux

package connlimit

import "context"

// Left reports whether the client of a request has left, which is not known here before
// the server notices by itself.
func Left(context.Context) bool { return false }
