//go:build linux

package gvisor_test

import "testing"

// The server keeps its own files from others by its umask, as these tests do. What is
// seen inside is what it is everywhere.
func TestModesInsideAreThoseOfAnyMachine(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	const look = "stat -c '%a %n' / /dev /etc /etc/ssl /etc/passwd /etc/profile /home /opt /root /run /tmp /usr /var /var/cache /var/lib /var/tmp . "
	const want = `755 /
755 /dev
755 /etc
755 /etc/ssl
644 /etc/passwd
644 /etc/profile
755 /home
755 /opt
755 /root
755 /run
1777 /tmp
755 /usr
755 /var
755 /var/cache
755 /var/lib
1777 /var/tmp
755 .`
	if got := h.sh(s, look); got != want {
		t.Errorf("inside there is\n%s\nwant\n%s", got, want)
	}
	if got, want := h.sh(s, "umask; touch file ~/file; mkdir dir /tmp/dir; stat -c %a file ~/file dir /tmp/dir"), "0022\n644\n644\n755\n755"; got != want {
		t.Errorf("commands see %q, want %q", got, want)
	}
	if got, want := h.sh(s, "chmod 700 ~ && chmod 751 . && stat -c %a ~ ."), "700\n751"; got != want {
		t.Errorf("commands see %q, want %q", got, want)
	}
	h.stop(s)
	if got, want := h.sh(h.create(fence(2, 2)), "umask; stat -c %a ~ . file dir"), "0022\n700\n751\n644\n755"; got != want {
		t.Errorf("the next sandbox has %q, want %q", got, want)
	}
}
