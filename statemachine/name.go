package statemachine

import (
	"fmt"
	"strconv"
	"strings"
)

// Desired is what the operator wants of a topic: the suffix of its mirror.name value.
type Desired int8

// The desired states.
const (
	WantMirroring Desired = 0
	WantPaused    Desired = 1 // value "m.paused"
	WantStopped   Desired = 2 // value "m.stopped"
)

const (
	pausedSuffix  = ".paused"
	stoppedSuffix = ".stopped"
	removedSuffix = ".removed" // an older draft's marker of a stopped topic
)

// String is the state that is wanted: MIRRORING, PAUSED, STOPPED.
func (d Desired) String() string {
	switch d {
	case WantMirroring:
		return Mirroring.String()
	case WantPaused:
		return Paused.String()
	case WantStopped:
		return Stopped.String()
	}
	return "Desired(" + strconv.Itoa(int(d)) + ")"
}

// MirrorNameValue is the value of mirror.name for a mirror and a wish; ParseMirrorNameValue reads one. The name is not checked.
func MirrorNameValue(mirror string, want Desired) string {
	switch want {
	case WantPaused:
		return mirror + pausedSuffix
	case WantStopped:
		return mirror + stoppedSuffix
	}
	return mirror
}

// ParseMirrorNameValue splits a mirror.name value. Errors: a name that CheckMirrorName refuses.
func ParseMirrorNameValue(value string) (mirror string, want Desired, err error) {
	mirror = value
	if m, ok := strings.CutSuffix(value, pausedSuffix); ok {
		mirror, want = m, WantPaused
	} else if m, ok := strings.CutSuffix(value, stoppedSuffix); ok {
		mirror, want = m, WantStopped
	}
	if err := CheckMirrorName(mirror); err != nil {
		return "", 0, fmt.Errorf("value %.300q of mirror.name: %w", value, err)
	}
	return mirror, want, nil
}

// MaxMirrorName is the length of the longest mirror name.
const MaxMirrorName = 249

// MirrorNameError is a mirror name that CheckMirrorName refuses.
type MirrorNameError struct{ Name, Reason string }

func (e *MirrorNameError) Error() string {
	return fmt.Sprintf("mirror name %.300q %s; choose another one", e.Name, e.Reason)
}

// CheckMirrorName: 1–249 ASCII letters, digits, '.', '_', '-'; not "." or ".."; not ending in .stopped, .paused or .removed.
// Errors: *MirrorNameError.
func CheckMirrorName(name string) error {
	refuse := func(reason string) error { return &MirrorNameError{Name: name, Reason: reason} }
	switch {
	case name == "":
		return refuse("is empty")
	case len(name) > MaxMirrorName:
		return refuse(fmt.Sprintf("is %d bytes long, more than %d", len(name), MaxMirrorName))
	case name == "." || name == "..":
		return refuse("is a path, not a name")
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return refuse(fmt.Sprintf("holds the byte %q at position %d; only ASCII letters, digits, '.', '_' and '-' are allowed", name[i:i+1], i))
		}
	}
	for _, suffix := range []string{stoppedSuffix, pausedSuffix, removedSuffix} {
		if strings.HasSuffix(name, suffix) {
			return refuse("ends in " + suffix + ", which marks what is wanted of a topic")
		}
	}
	return nil
}
