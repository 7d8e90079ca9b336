package kafkaconfig

import "errors"

// Error is one thing that is wrong with a setting, found by Parse or when a connection is made. It never holds a value of a secret setting.
type Error struct {
	Setting string // its name
	Problem string
	Advice  string // what to do
	Err     error  // what lies below, nil for nothing
}

func (e *Error) Error() string {
	s := e.Setting + ": " + e.Problem
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Advice != "" {
		s += "; " + e.Advice
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Wrong is what is wrong, without the advice.
func (e *Error) Wrong() error {
	bare := *e
	bare.Advice = ""
	return &bare
}

// Find is the Error in err's chain, nil if there is none.
func Find(err error) *Error {
	var e *Error
	errors.As(err, &e)
	return e
}
