package statuspage

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	style string
)

// policy allows the one style sheet that is in the page, and nothing else: no script, no frame, no form, no request.
var policy = func() string {
	h := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(h[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// refreshSeconds is how often the page loads itself again.
const refreshSeconds = 10

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"style":     func() template.CSS { return template.CSS(style) },
	"count":     count,
	"line":      mirror.OneLine,
	"age":       ageWords,
	"ago":       func(s *float64) string { return ageWords(s) + " ago" },
	"stamp":     stamp,
	"clock":     func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"pages":     pagesOf,
	"orUnknown": func(s string) string { return cmp.Or(s, "unknown") },
}).Parse(pageText))

// shown is a view as the template wants it.
type shown struct {
	view
	Refresh int // seconds; 0: never
	Stay    bool
	asked   asking
	Charts  []chart
}

func writeHTML(w io.Writer, v view, asked asking) error {
	s := shown{view: v, Refresh: refreshSeconds, Stay: asked.still, asked: asked}
	if asked.still {
		s.Refresh = 0
	}
	if v.Mirror != nil && v.Mirror.Lag != nil {
		s.Charts = charts(v.Mirror.Lag)
	}
	return page.Execute(w, s)
}

// Link is the address of a page from here: the same mirror, and what is given. Relative, so that it does not matter where the page is mounted.
func (s shown) Link(name, topic string, from int) string {
	return s.link(name, topic, from, s.Stay, "")
}

func (s shown) link(name, topic string, from int, still bool, last string) string {
	q := url.Values{}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	set("mirror", name)
	set("topic", topic)
	if from > 0 {
		q.Set("from", strconv.Itoa(from))
	}
	if still {
		q.Set("refresh", "off")
	}
	words := q.Encode()
	if last != "" {
		words = strings.TrimPrefix(words+"&"+last, "&")
	}
	return "?" + words
}

// Toggle is this page, standing still if it does not, and the other way round.
func (s shown) Toggle() string {
	return s.link(s.asked.mirror, s.asked.topic, s.asked.from, !s.Stay, "")
}

// PlanLink is the whole plan of the mirror.
func (s shown) PlanLink() string { return s.link(s.Mirror.Name, "", 0, false, "plan") }

// pages leads to the other parts of what is listed.
type pages struct {
	window
	Back, Forth string
}

func pagesOf(s shown, w window) pages {
	return pages{w, s.Link(s.asked.mirror, s.asked.topic, max(0, w.From-w.most)), s.Link(s.asked.mirror, s.asked.topic, w.Next())}
}

// Age is how old the oldest copy is.
func (r risk) Age() string {
	switch {
	case r.Copies == 0:
		return "there is no copy"
	case r.AgeSeconds == nil:
		return "unknown"
	case r.UnknownAge > 0:
		return fmt.Sprintf("unknown of %s; of the others at most %s (%s)", partitions(r.UnknownAge), ageWords(r.AgeSeconds), r.Oldest)
	case *r.AgeSeconds == 0:
		return "none: each copy holds everything then known at the source"
	}
	return fmt.Sprintf("%s (%s)", ageWords(r.AgeSeconds), r.Oldest)
}

// Missing is how much the copies lack.
func (r risk) Missing() string {
	s := ""
	switch {
	case r.Copies == 0:
		return "-"
	case r.UnknownOffsets == r.Copies:
		return "unknown"
	case r.UnknownOffsets > 0:
		s = fmt.Sprintf("unknown of %s; at least ", partitions(r.UnknownOffsets))
	}
	s += count(r.Offsets) + " offsets"
	if r.Offsets > 0 && r.UnknownBytes == r.UnknownOffsets {
		s += ", about " + count(r.Bytes) + " bytes"
	}
	return s
}

// Predicted is what a failover is expected to take.
func (r risk) Predicted() string {
	if r.PredictedSeconds == nil {
		return "unknown, none was measured"
	}
	return fmt.Sprintf("%.3f s, the longest that was measured", *r.PredictedSeconds)
}

func partitions(n int) string {
	if n == 1 {
		return "1 partition"
	}
	return count(int64(n)) + " partitions"
}

// Lag of a topic: what nobody knows is no number.
func (t topicRow) Lag() string {
	switch {
	case t.copies == 0:
		return "-"
	case t.UnknownLag == t.copies:
		return "unknown"
	case t.UnknownLag > 0:
		return fmt.Sprintf("unknown of %d, at least %s", t.UnknownLag, count(t.Offsets))
	}
	return count(t.Offsets)
}

// Age of the topic's oldest copy.
func (t topicRow) Age() string {
	switch {
	case t.copies == 0:
		return "-"
	case t.UnknownAge == 0:
		return ageWords(t.AgeSeconds)
	case t.AgeSeconds == nil:
		return "unknown"
	}
	return fmt.Sprintf("unknown of %d, at least %s", t.UnknownAge, ageWords(t.AgeSeconds))
}

// Lag of a partition.
func (p partitionRow) Lag() string {
	switch {
	case !p.copy:
		return "-"
	case p.Offsets == nil:
		return "unknown"
	}
	return count(*p.Offsets)
}

// Age of the partition's copy.
func (p partitionRow) Age() string {
	if !p.copy {
		return "-"
	}
	return ageWords(p.AgeSeconds)
}

// Source is where the source ends, with the age of that knowledge.
func (p partitionRow) Source() string {
	if p.SourceEnd == nil {
		return "unknown"
	}
	return fmt.Sprintf("%d, seen %s ago", *p.SourceEnd, ageWords(p.SeenAgeSeconds))
}

// Others is how many there are besides those that are named.
func (w wrong) Others() int { return w.Count - len(w.Where) }

func ageWords(s *float64) string {
	if s == nil {
		return "unknown"
	}
	if *s == 0 {
		return "0s"
	}
	return span(time.Duration(*s * float64(time.Second)))
}

// count is a number with its thousands apart.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// chart is one number over time, 600 wide and 60 high.
type chart struct {
	Text  string   // what it shows, in words
	Lines []string // points; where nothing is known there is none
	Gaps  []gap
}

// gap is where nothing is known.
type gap struct{ X, Width string }

const chartWidth, chartHeight = 600, 60

func charts(l *overTime) []chart {
	over := span(time.Duration(float64(max(0, len(l.age)-1)) * l.IntervalSeconds * float64(time.Second)))
	ageOf := func(v float32) string {
		s := float64(v)
		return ageWords(&s)
	}
	return []chart{
		chartOf("Age of the oldest copy", over, l.age, ageOf),
		chartOf("Offsets not copied", over, l.offsets, func(v float32) string { return count(int64(v)) }),
	}
}

func chartOf(title, over string, all []float32, words func(float32) string) chart {
	now, most := "unknown", ""
	top := float32(unknown)
	for _, v := range all {
		top = max(top, v)
	}
	if n := len(all); n > 0 && all[n-1] != unknown {
		now = words(all[n-1])
	}
	c := chart{}
	switch {
	case top == unknown:
		most = "never known"
	case slices.Contains(all, unknown):
		most = "at most " + words(top) + " while it was known,"
	default:
		most = "at most " + words(top)
	}
	c.Text = fmt.Sprintf("%s: now %s, %s in the last %s", title, now, most, over)
	step := float64(chartWidth) / float64(samples-1)
	left := float64(samples-len(all)) * step // the newest sample is at the right edge
	x := func(i int) string { return short(left + float64(i)*step) }
	var points []string
	flush := func() {
		if len(points) == 1 {
			points = append(points, points[0]) // a round cap makes it a dot
		}
		if len(points) > 0 {
			c.Lines = append(c.Lines, strings.Join(points, " "))
		}
		points = nil
	}
	began := -1
	for i := 0; i <= len(all); i++ {
		out := i == len(all) || all[i] != unknown
		if !out && began < 0 {
			began = i
		}
		if out && began >= 0 {
			c.Gaps = append(c.Gaps, gap{x(began), short(max(1, min(float64(i-began)*step, chartWidth-left-float64(began)*step)))})
			began = -1
		}
		if i == len(all) || all[i] == unknown {
			flush()
			continue
		}
		y := float64(chartHeight - 2)
		if top > 0 {
			y -= float64(all[i]/top) * (chartHeight - 4)
		}
		points = append(points, x(i)+","+short(y))
	}
	return c
}

func short(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
