package main

import (
	"fmt"
	"strings"
)

// checklist is what was checked, and what did not hold.
type checklist struct {
	lines  []string
	failed []string
}

func (c *checklist) check(name string, err error) {
	if err != nil {
		c.failed = append(c.failed, fmt.Sprintf("%q", name))
		c.lines = append(c.lines, "  NO   "+name+": "+err.Error())
		return
	}
	c.lines = append(c.lines, "  yes  "+name)
}

func (c *checklist) String() string { return "Checks:\n" + strings.Join(c.lines, "\n") }

func (c *checklist) err() error {
	if len(c.failed) > 0 {
		return fmt.Errorf("%d of %d checks did not hold: %s", len(c.failed), len(c.lines), strings.Join(c.failed, ", "))
	}
	return nil
}
