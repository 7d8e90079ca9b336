package runbook

import (
	"regexp"
	"strings"
)

// The clusters' ids as pages show them.
const (
	pagePrimaryID = "PqwYhCxRbmzsVvnJykLxAa"
	pageStandbyID = "KHqKNX68hETrA5WXK1fB2w"
	pageOtherID   = "Tf0pWn3zQ4e2sLr8yVbG1c"
)

var (
	planHash = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{8}\b|\bplan [0-9a-f]{8,12}\b`)
	uuid     = regexp.MustCompile(`(^|[^\w-])([\w-]{22})($|[^\w-])`)
	moment   = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?( ?UTC|Z)?`)
	age      = regexp.MustCompile(`just now|<?\d[\d.]*(ms|µs|[smhd])(\d[\d.]*(ms|µs|[smhd]))* ago`)
	duration = regexp.MustCompile(`<?\b\d[\d.]*(ms|µs|ns|[smh])(\d[\d.]*(ms|µs|[smh]))*\b`)
	number   = regexp.MustCompile(`\d+`)
	status   = regexp.MustCompile(`^exit status \d+$`)
	blanks   = regexp.MustCompile(`[ \t]+`)
)

// masked is a line without what differs from run to run, and how wide columns are because of that. A 0 that stands alone is a word, as in "LAG 0": it stays, and so does an exit status.
func masked(line string) string {
	if status.MatchString(line) {
		return line
	}
	line = planHash.ReplaceAllString(line, "PLAN")
	keep := strings.NewReplacer(pagePrimaryID, "SOURCE-ID", pageStandbyID, "STANDBY-ID", pageOtherID, "OTHER-ID")
	line = uuid.ReplaceAllString(keep.Replace(line), "${1}ID$3")
	line = age.ReplaceAllString(moment.ReplaceAllString(line, "TIME"), "AGE")
	line = duration.ReplaceAllString(line, "DURATION")
	line = number.ReplaceAllStringFunc(line, func(n string) string {
		if n == "0" {
			return n
		}
		return "#"
	})
	return blanks.ReplaceAllString(line, " ")
}
