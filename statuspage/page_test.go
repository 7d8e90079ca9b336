package statuspage

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	unescape "html"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew instead of comparing with it")

// mib is what a page has at most.
const mib = 1 << 20

// fake is a mirror that says what it is told to, at the moment at which it is asked.
type fake struct {
	status      mirror.Status
	sourceError string
	asked       atomic.Int64 // for snapshots
}

func (f *fake) Status() mirror.Status {
	s := f.status
	s.Taken = time.Now()
	return s
}

func (f *fake) Snapshot() mirror.Snapshot {
	f.asked.Add(1)
	st := f.Status()
	s := mirror.Snapshot{Mirror: st.Mirror, SourceClusterID: st.SourceClusterID, DestinationClusterID: st.DestinationClusterID, Taken: st.Taken, SourceError: f.sourceError, Failovers: st.Failovers}
	for _, t := range st.Topics {
		ts := mirror.TopicSnapshot{Topic: t.Topic, MirrorName: t.MirrorName}
		if t.Err != nil {
			ts.Reason = t.Err.Error()
		}
		s.Topics = append(s.Topics, ts)
		s.Partitions = append(s.Partitions, t.Partitions...)
	}
	return s
}

// faked is a mirror dr of so many topics with so many partitions each; change is asked about each of them.
func faked(topics, partitions int, change func(topic int, p *mirror.PartitionStatus)) *fake {
	now := time.Now()
	f := &fake{status: mirror.Status{Mirror: "dr", SourceClusterID: "A", DestinationClusterID: "B"}}
	for i := range topics {
		t := mirror.TopicStatus{Topic: fmt.Sprintf("topic-%04d", i), MirrorName: "dr"}
		for n := range partitions {
			end := int64(1000*i + n)
			p := mirror.PartitionStatus{Mirror: "dr", Topic: t.Topic, Partition: int32(n), State: statemachine.Mirroring, Want: statemachine.WantMirroring, End: end, Replicated: end, SourceEnd: end,
				SourceSeen: now.Add(-2 * time.Second), LastStable: end, HighestProducerID: mirror.Unknown, ResetAt: mirror.Unknown, Owner: mirror.OwnerOurs}
			if change != nil {
				change(i, &p)
			}
			t.Topic = p.Topic
			t.Partitions = append(t.Partitions, p)
		}
		f.status.Topics = append(f.status.Topics, t)
	}
	return f
}

// of is a page about these mirrors.
func of(t testing.TB, mirrors ...Mirror) *Page {
	t.Helper()
	var subjects []Subject
	for i, m := range mirrors {
		name := "dr"
		if i > 0 {
			name = fmt.Sprintf("dr-%d", i+1)
		}
		subjects = append(subjects, Subject{Name: name, Mirror: m})
	}
	p, err := New(Config{Title: "node 9999", Mirrors: func() []Subject { return subjects }})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// get is what the page answers.
func get(t testing.TB, p http.Handler, target string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", target, nil)
	r.Host = "localhost:9701"
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

func wants(t testing.TB, p http.Handler, target string) string {
	t.Helper()
	w := get(t, p, target)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", target, w.Code, w.Body)
	}
	return w.Body.String()
}

// Of the plan only the place is held: its words are package mirror's.
var (
	planOnPage = regexp.MustCompile(`(?s)<pre>FAILOVER PLAN .*?</pre>`)
	planInJSON = regexp.MustCompile(`"(hash": "[0-9a-f]{8}|text": "FAILOVER PLAN .*)"`)
)

func golden(t *testing.T, name, got string) {
	t.Helper()
	got = planInJSON.ReplaceAllString(planOnPage.ReplaceAllString(got, "<pre>(the plan)</pre>"), `"(the plan)": ""`)
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Errorf("%s, line %d:\n%s\nwant\n%s", file, i+1, g[i], w[i])
				return
			}
		}
		t.Errorf("%s: %d lines, want %d", file, len(g), len(w))
	}
}

// broken is a mirror in which much is wrong.
func broken() *fake {
	now := time.Now()
	f := faked(4, 3, func(topic int, p *mirror.PartitionStatus) {
		switch {
		case topic == 0 && p.Partition < 2:
			p.State, p.RetryAttempt, p.Reason = statemachine.Failed, statemachine.NonRetryable, "the source's topic was deleted and created again; start it anew with consent, or exclude it"
			p.LagOffsets, p.LagTime, p.LagUnknown = mirror.Unknown, 14*time.Minute, now.Add(-14*time.Minute)
		case topic == 1 && p.Partition == 1:
			p.State, p.RetryAttempt, p.NextRetry, p.Reason = statemachine.Failed, 7, now.Add(40*time.Second), "appending: no space left on device"
			p.LagOffsets, p.LagTime = 120, 3*time.Minute
		case topic == 1 && p.Partition == 2:
			p.State, p.Step, p.LagTime, p.LagOffsets = statemachine.Preparing, "FIND_COMMON_POINT", mirror.Unknown, mirror.Unknown
			p.NeedsConsent = &mirror.Consent{Partition: 2, From: 17, To: 21, Episode: 2}
		case topic == 2:
			p.LagOffsets, p.LagTime, p.OffsetBytes, p.SourceEnd = 1234567, 95*time.Second, 100, p.End+1234567
			p.InFlight = []mirror.Transaction{{ProducerID: 4711, ProducerEpoch: 1, FirstOffset: 1990, LastOffset: 1995}}
			if p.Partition == 0 {
				p.Reason = "held back by a quota of broker 2"
				p.LostFrom, p.LostTo = 100, 150
			}
		}
	})
	f.status.Topics = append(f.status.Topics, mirror.TopicStatus{Topic: "gone", MirrorName: "dr", Err: errors.New("the topic is missing at the source")})
	f.status.Metadata.Groups.Err = errors.New("list groups: not authorized")
	f.status.Failovers = []mirror.MeasuredFailover{{Ended: now.Add(-48 * time.Hour), Took: 900 * time.Millisecond, Partitions: 3, Steps: []mirror.StepTime{{Step: mirror.BeginStep, Took: 900 * time.Millisecond}}}}
	return f
}

func TestPageSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := of(t, broken())
		at := mirror.EventMeta{Time: time.Now(), Mirror: "dr", Topic: "topic-0001", Partition: 1}
		for i := range 20 {
			p.sample()
			time.Sleep(30 * time.Second)
			if i == 3 {
				p.Observe(mirror.StateChanged{EventMeta: at, From: statemachine.Mirroring, To: statemachine.Failed, Reason: "appending: no space left on device"})
			}
		}
		p.Observe(mirror.LeaderMoved{EventMeta: at, Leader: 3, Epoch: 12})
		for name, target := range map[string]string{"broken.html": "/", "broken.json": "/page.json", "broken-topic.html": "/?mirror=dr&topic=topic-0001", "broken-topic.json": "/page.json?topic=topic-0001&mirror=dr"} {
			golden(t, name, wants(t, p, target))
		}

		golden(t, "well.html", wants(t, of(t, faked(3, 4, nil)), "/"))
		golden(t, "still.html", wants(t, of(t, faked(1, 1, nil)), "/?refresh=off"))

		silent := faked(2, 2, func(_ int, p *mirror.PartitionStatus) {
			p.SourceSeen = time.Now().Add(-5 * time.Minute)
			p.LagOffsets, p.LagTime, p.LagUnknown = mirror.Unknown, 5*time.Minute, p.SourceSeen
		})
		silent.sourceError = "dial tcp 10.0.0.1:9092: connect: connection refused"
		p = of(t, silent)
		golden(t, "source-gone.html", wants(t, p, "/"))
		golden(t, "source-gone.json", wants(t, p, "/page.json"))

		p, err := New(Config{Title: "node 9999", Mirrors: func() []Subject {
			return []Subject{{Name: "dr", Mirror: faked(3, 4, nil)}, {Name: "eu", Problem: "node 9998 has it"}}
		}, Trouble: func() []string { return []string{"the controllers have fenced it"} }})
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "two-mirrors.html", wants(t, p, "/"))
		golden(t, "does-not-run.html", wants(t, p, "/?mirror=eu"))

		p, err = New(Config{Title: "node 9999", Mirrors: func() []Subject { return nil }, Trouble: func() []string { return []string{"standing by: another process has its place"} }})
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "standing-by.html", wants(t, p, "/"))
	})
}

// The first line is the worst thing, in the words of a description.
func TestFirstLineSaysTheWorstThing(t *testing.T) {
	heading := regexp.MustCompile(`<h1 class="(\w+)">(.*)</h1>`)
	first := func(p *Page, target string) string {
		m := heading.FindStringSubmatch(wants(t, p, target))
		return m[1] + " " + m[2]
	}
	well, ill := faked(2, 2, nil), broken()
	for what, tc := range map[string]struct {
		page   *Page
		target string
		want   string
	}{
		"one that is well":        {of(t, well), "/", "good " + well.Snapshot().Head()},
		"one that is not":         {of(t, ill), "/", "bad " + ill.Snapshot().Head()},
		"the second of two":       {of(t, well, ill), "/", "bad dr-2: " + ill.Snapshot().Head()},
		"the first, of two":       {of(t, well, ill), "/?mirror=dr", "good " + well.Snapshot().Head()},
		"on the page of a topic":  {of(t, ill), "/?mirror=dr&topic=topic-0003", "bad " + ill.Snapshot().Head()},
		"nothing runs":            {of(t), "/", "warning NO MIRROR runs here"},
		"one that was taken away": {of(t, &fake{status: mirror.Status{Mirror: "dr", Fenced: mirror.ErrFenced}}), "/", "bad FENCED: another process has it, this one has stopped serving it; NO TOPICS"},
	} {
		if got := first(tc.page, tc.target); got != tc.want {
			t.Errorf("%s: %q, want %q", what, got, tc.want)
		}
	}
}

var (
	tag       = regexp.MustCompile(`<(/?)([a-zA-Z!][a-zA-Z0-9]*)([^>]*)>`)
	attribute = regexp.MustCompile(`^( ([a-z-]+|viewBox|preserveAspectRatio)="[^"<>]*")*/?$`)
	allowed   = strings.Fields("html head meta title style body main h1 h2 p a strong ul li dl dt dd div table thead tbody tr th td figure figcaption span svg rect polyline pre")
)

// harmless fails the test unless a page consists of the elements that the template has, without a script, a handler or anything from elsewhere.
func harmless(t *testing.T, html string) {
	t.Helper()
	if strings.Count(html, "<") != len(tag.FindAllString(html, -1)) {
		t.Error("there is a < that begins no element")
	}
	for _, m := range tag.FindAllStringSubmatch(html, -1) {
		if m[0] == "<!doctype html>" {
			continue
		}
		if !slices.Contains(allowed, m[2]) || !attribute.MatchString(m[3]) || regexp.MustCompile(` (on[a-z]+|style|src)=`).MatchString(m[3]) {
			t.Errorf("the page has %s", m[0])
		}
		if link := regexp.MustCompile(`href="([^"]*)"`).FindStringSubmatch(m[3]); link != nil && !strings.HasPrefix(link[1], "?") {
			t.Errorf("a link leads to %s", link[1])
		}
	}
}

// evil are texts that want to be something else.
var evil = []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</style><script>`, `</title>`, `javascript:alert(1)`, "\u202etxt.exe", "a\nb\r\x00\x1b[31m", "\xff\xfe", `{{.}}`,
	`&lt;b&gt;`, `]]>`, `<!--`, `?mirror=x&plan`, `../../etc/passwd`}

func TestHostileTextsStayTexts(t *testing.T) {
	for _, s := range evil {
		f := faked(2, 2, func(topic int, p *mirror.PartitionStatus) {
			p.State, p.Reason, p.Step = statemachine.Failed, s, s
			if topic == 0 {
				p.Topic = s
			}
		})
		f.status.Mirror, f.status.SourceClusterID, f.status.DestinationClusterID = s, s, s
		f.status.Topics[1].Err, f.status.Topics[1].MirrorName = errors.New(s), s
		f.status.Metadata.ACLs.Err, f.status.Fenced = errors.New(s), errors.New(s)
		f.status.Topics[0].SplitBrain = []mirror.SplitBrain{{To: 5}}
		f.sourceError = s
		p, err := New(Config{Title: s, Mirrors: func() []Subject { return []Subject{{Name: s, Mirror: f, Problem: s}, {Name: "other" + s, Problem: s}} }, Trouble: func() []string { return []string{s} }})
		if err != nil {
			t.Fatal(err)
		}
		p.sample()
		p.Observe(mirror.TopicTrouble{EventMeta: mirror.EventMeta{Mirror: s, Topic: s, Partition: 0}, Err: errors.New(s)})
		q := "mirror=" + queryOf(s)
		for _, target := range []string{"/", "/?" + q, "/?" + q + "&topic=" + queryOf(s), "/?mirror=" + queryOf("other"+s)} {
			w := get(t, p, target)
			if w.Code != http.StatusOK && !strings.Contains(s, "\xff") {
				t.Errorf("%q: %s: %d", s, target, w.Code)
			}
			if w.Code == http.StatusOK {
				harmless(t, w.Body.String())
			}
			if strings.ContainsAny(w.Body.String(), "\x00\x1b\u202e") {
				t.Errorf("%q: %s has characters that move the reader", s, target)
			}
		}
		var back any
		if err := json.Unmarshal([]byte(wants(t, p, "/page.json")), &back); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func queryOf(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// The table is in the page itself: no script is needed for anything, and the headers allow none.
func TestPageNeedsNoScript(t *testing.T) {
	p := of(t, broken())
	p.sample()
	w := get(t, p, "/")
	html := w.Body.String()
	harmless(t, html)
	for _, want := range []string{"<td class=\"name\">topic-0000-0</td>", "appending: no space left on device", "<rect x=", `<meta http-equiv="refresh" content="10">`, "FAILOVER PLAN  mirror dr"} {
		if !strings.Contains(html, want) {
			t.Errorf("%s is not in the page", want)
		}
	}
	if pre := regexp.MustCompile(`(?s)<pre>(.*)</pre>`).FindStringSubmatch(html); pre == nil || !strings.HasPrefix(wants(t, p, "/?plan"), unescape.UnescapeString(pre[1])) {
		t.Error("the plan on the page is not the plan")
	}
	if html := wants(t, p, "/?mirror=dr&topic=topic-0002"); !strings.Contains(html, "<polyline points=") {
		t.Error("no lag is drawn")
	}
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(html)[1]
	h := sha256.Sum256([]byte(style))
	for header, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(h[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":  "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", "Content-Type": "text/html; charset=utf-8",
		"Access-Control-Allow-Origin": "", "Set-Cookie": "", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := w.Header().Get(header); got != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
}

func TestPageOnlyShows(t *testing.T) {
	p := of(t, faked(1, 1, nil))
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"} {
		w := get(t, p, "/", func(r *http.Request) { r.Method = method })
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d %v", method, w.Code, w.Header())
		}
	}
	if w := get(t, p, "/", func(r *http.Request) { r.Method = "HEAD" }); w.Code != http.StatusOK {
		t.Errorf("HEAD: %d", w.Code)
	}
	for _, target := range []string{"/?mirror=no", "/?mirror=dr&topic=no", "/?mirror=no&plan"} {
		if w := get(t, p, target); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	for _, target := range []string{"/?from=x", "/?from=-5", "/?from=99999999", "/?from=99999999999999999999", "/%00?topic=&mirror="} {
		if w := get(t, p, target); w.Code != http.StatusOK {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
}

// A page elsewhere that has its name lead here (DNS rebinding) names that in its requests.
func TestPageIsAskedForByItsOwnName(t *testing.T) {
	narrow := of(t, faked(1, 1, nil))
	named, err := New(Config{Mirrors: func() []Subject { return nil }, Hosts: []string{"mirror-1.example.com", "10.0.0.9"}})
	if err != nil {
		t.Fatal(err)
	}
	open, err := New(Config{Mirrors: func() []Subject { return nil }, Hosts: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		host          string
		narrow, named bool
	}{
		{"localhost", true, true}, {"LOCALHOST:9701", true, true}, {"127.0.0.1:9701", true, true}, {"127.1.2.3", true, true}, {"[::1]:9701", true, true}, {"[::1]", true, true}, {"::1", true, true},
		{"evil.example.com", false, false}, {"localhost.evil.example.com", false, false}, {"127.0.0.1.evil.example.com:80", false, false}, {"10.0.0.1", false, false}, {"", false, false}, {"0.0.0.0", false, false},
		{"mirror-1.example.com:9701", false, true}, {"Mirror-1.Example.com", false, true}, {"10.0.0.9:80", false, true}, {"169.254.169.254", false, false}, {"*", false, false},
	} {
		for _, x := range []struct {
			page *Page
			ok   bool
		}{{narrow, tc.narrow}, {named, tc.named}, {open, true}} {
			w := get(t, x.page, "/", func(r *http.Request) { r.Host = tc.host })
			if want := map[bool]int{true: http.StatusOK, false: http.StatusMisdirectedRequest}[x.ok]; w.Code != want || w.Header().Get("Content-Security-Policy") == "" {
				t.Errorf("%q: %d, want %d", tc.host, w.Code, want)
			}
		}
	}
}

func TestPageAsJSON(t *testing.T) {
	p := of(t, broken())
	for what, tc := range map[string]struct{ target, accept, content string }{
		"a browser":           {"/", "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8", "text/html; charset=utf-8"},
		"curl":                {"/", "*/*", "text/html; charset=utf-8"},
		"a script":            {"/", "application/json", "application/json"},
		"by its name":         {"/page.json", "text/html", "application/json"},
		"the plan":            {"/?plan&mirror=dr", "", "text/plain; charset=utf-8"},
		"the plan of the one": {"/?plan", "", "text/plain; charset=utf-8"},
		"the plan as JSON":    {"/?plan", "application/json", "application/json"},
	} {
		w := get(t, p, tc.target, func(r *http.Request) { r.Header.Set("Accept", tc.accept) })
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != tc.content {
			t.Errorf("%s: %d %s", what, w.Code, got)
		}
	}
	var v struct {
		Version int
		Head    string
		Mirror  struct {
			Lag        any `json:"lagOverTime"`
			Partitions []struct {
				Topic      string
				Offsets    *int64 `json:"lagOffsets"`
				AgeSeconds *float64
			}
		}
	}
	if err := json.Unmarshal([]byte(wants(t, p, "/page.json")), &v); err != nil {
		t.Fatal(err)
	}
	if first := v.Mirror.Partitions[0]; v.Version != 1 || v.Mirror.Lag != nil || first.Offsets != nil || !strings.HasPrefix(v.Head, "WANTED: ") {
		t.Errorf("%+v", v)
	}
	var plan mirror.FailoverPlan
	if err := json.Unmarshal([]byte(wants(t, p, "/plan.json?plan")), &plan); err != nil || len(plan.Partitions) != 12 {
		t.Errorf("%v, %d partitions", err, len(plan.Partitions))
	}
}

// Texts that are as long and as costly to escape as they can be.
func long(n int) string { return strings.Repeat(`"`, n) }

func TestFiveThousandPartitionsFitIntoAMiB(t *testing.T) {
	failed := func(topic int, p *mirror.PartitionStatus) {
		p.State, p.RetryAttempt, p.Reason = statemachine.Failed, 3, fmt.Sprintf("appending at %d: %s", topic*1000+int(p.Partition), strings.Repeat("no space left on device ", 25))
		p.LagOffsets, p.LagTime = mirror.Unknown, mirror.Unknown
	}
	hostile := func(topic int, p *mirror.PartitionStatus) {
		failed(topic, p)
		p.Topic = fmt.Sprintf("%04d", topic) + long(245)
		p.Reason = fmt.Sprint(p.Partition, topic) + long(600)
		p.InFlight = make([]mirror.Transaction, 10)
	}
	for what, f := range map[string]*fake{
		"all are well":                  faked(50, 100, nil),
		"all are well, a topic each":    faked(5000, 1, nil),
		"all are well, one topic":       faked(1, 5000, nil),
		"all have failed":               faked(50, 100, failed),
		"all have failed, a topic each": faked(5000, 1, failed),
		"all have failed, one topic":    faked(1, 5000, failed),
		"hostile":                       faked(50, 100, hostile),
		"hostile, a topic each":         faked(1000, 1, hostile),
		"hostile, one topic":            faked(1, 5000, hostile),
	} {
		if strings.HasPrefix(what, "hostile") {
			f.sourceError = long(2000)
			for i := range f.status.Topics {
				f.status.Topics[i].Err = errors.New(fmt.Sprint(i) + long(2000))
			}
		}
		p := of(t, f)
		for range samples {
			p.sample()
		}
		for i := range 300 {
			p.Observe(mirror.TopicTrouble{EventMeta: mirror.EventMeta{Mirror: "dr", Topic: f.status.Topics[0].Topic, Partition: 0}, Err: errors.New(fmt.Sprint(i) + long(2000))})
		}
		for _, target := range []string{"/", "/?from=1000", "/?topic=" + queryOf(f.status.Topics[0].Topic) + "&mirror=dr"} {
			html := wants(t, p, target)
			t.Logf("%s, %.12s: %d bytes", what, target, len(html))
			if len(html) > mib {
				t.Errorf("%s, %.12s: %d bytes", what, target, len(html))
			}
			if strings.HasPrefix(what, "all have failed") && !strings.Contains(html, "no space left on device") {
				t.Errorf("%s, %.12s: does not say why", what, target)
			}
		}
	}
	var many []Mirror
	for range 1000 {
		many = append(many, &fake{status: mirror.Status{Mirror: long(200), Fenced: errors.New(long(2000))}})
	}
	if html := wants(t, of(t, many...), "/"); len(html) > mib {
		t.Errorf("a thousand mirrors: %d bytes", len(html))
	}
}

// Each row can be reached: the parts of a page follow each other without a gap.
func TestEveryRowIsALinkAway(t *testing.T) {
	more := regexp.MustCompile(`<a href="([^"]*)">More</a>`)
	row := regexp.MustCompile(`<td class="name">topic-0000-(\d+)</td>`)
	for what, tc := range map[string]struct {
		page   *Page
		target string
		row    *regexp.Regexp
	}{
		"topics":     {of(t, faked(700, 1, nil)), "/", regexp.MustCompile(`>topic-(\d+)</a>`)},
		"partitions": {of(t, faked(1, 700, nil)), "/?mirror=dr&topic=topic-0000", row},
	} {
		seen := map[string]bool{}
		for target := tc.target; target != ""; {
			html := wants(t, tc.page, target)
			for _, m := range tc.row.FindAllStringSubmatch(html, -1) {
				seen[m[1]] = true
			}
			target = ""
			if m := more.FindStringSubmatch(html); m != nil {
				target = "/" + strings.ReplaceAll(m[1], "&amp;", "&")
			}
		}
		if len(seen) != 700 {
			t.Errorf("%s: %d of 700", what, len(seen))
		}
	}
}

// However much happens, and however many look, what the page keeps and asks is bounded.
func TestWhatThePageKeepsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := faked(6000, 1, nil)
		subjects := []Subject{{Name: "dr", Mirror: f}}
		p, err := New(Config{Mirrors: func() []Subject { return subjects }})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			e := mirror.EventMeta{Mirror: long(2000), Topic: long(5000)}
			p.Observe(mirror.TopicTrouble{EventMeta: e, Err: errors.New(long(2000))})
			p.Observe(mirror.EpochRaised{EventMeta: e, Epoch: int32(i)})
		}
		if n := len(p.recent.loud) + len(p.recent.quiet); n != loudRoom+quietRoom || cap(p.recent.loud)+cap(p.recent.quiet) > 4*n {
			t.Errorf("%d events are kept", n)
		}
		for _, h := range p.recent.loud {
			if len(h.Text) > textRoom+3 || len(h.Topic) > nameRoom+3 || len(h.Mirror) > nameRoom+3 {
				t.Fatalf("an event of %d bytes is kept", len(h.Text))
			}
		}
		for range 3 {
			p.sample()
		}
		if n := len(p.history["dr"].topics); n != mostTopics {
			t.Errorf("%d topics are kept", n)
		}
		for range 20 {
			wants(t, p, "/")
		}
		if n := f.asked.Load(); n != 1 {
			t.Errorf("%d snapshots for people who look at the same moment", n)
		}
		time.Sleep(lookAgain)
		wants(t, p, "/")
		if n := f.asked.Load(); n != 2 {
			t.Errorf("%d snapshots", n)
		}
		f.status.Topics = f.status.Topics[:10]
		p.sample()
		if n := len(p.history["dr"].topics); n != 10 {
			t.Errorf("%d topics are kept of 10", n)
		}
		subjects = nil
		p.sample()
		if len(p.history)+len(p.looks) != 0 {
			t.Error("a mirror that is not shown any more is kept")
		}
	})
}

// A quiet hour does not push out what was loud.
func TestLoudEventsAreNotPushedOut(t *testing.T) {
	p := of(t, faked(1, 1, nil))
	at := mirror.EventMeta{Mirror: "dr", Topic: "topic-0000", Partition: 0}
	p.Observe(mirror.StateChanged{EventMeta: at, From: statemachine.Mirroring, To: statemachine.Failed, Reason: "disk full"})
	for i := range 10_000 {
		p.Observe(mirror.EpochRaised{EventMeta: at, Epoch: int32(i)})
	}
	other := at
	other.Mirror = "another"
	p.Observe(mirror.EpochRaised{EventMeta: other})
	html := wants(t, p, "/")
	if !strings.Contains(html, "disk full") || !strings.Contains(html, "raised to 9999") || strings.Contains(html, "another/") || strings.Index(html, "disk full") < strings.Index(html, "raised to 9999") {
		t.Error("events are not as they should be")
	}
}

// What could not be measured is drawn as a gap, never as a number.
func TestUnknownLagIsAGap(t *testing.T) {
	c := chartOf("x", "1h", []float32{0, 10, unknown, unknown, 20, unknown}, func(v float32) string { return fmt.Sprint(v) })
	if len(c.Lines) != 2 || len(c.Gaps) != 2 || c.Text != "x: now unknown, at most 20 while it was known, in the last 1h" {
		t.Errorf("%+v", c)
	}
	if c := chartOf("x", "1h", []float32{unknown}, nil); c.Text != "x: now unknown, never known in the last 1h" || len(c.Lines) != 0 || len(c.Gaps) != 1 {
		t.Errorf("%+v", c)
	}
	if got := known([]float32{unknown, 0, 1.5}); got[0] != nil || *got[1] != 0 || *got[2] != 1.5 {
		t.Errorf("%v", got)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []Config{{}, {Mirrors: func() []Subject { return nil }, Interval: -1}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// One page of 5,000 partitions, asked for by people at the same time as samples are taken and things happen.
func TestManyLookAtTheSameTime(t *testing.T) {
	p := of(t, faked(50, 100, nil), broken())
	done := make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 5 {
				p.sample()
				p.Observe(mirror.EpochRaised{EventMeta: mirror.EventMeta{Mirror: "dr"}})
				var b bytes.Buffer
				b.WriteString(wants(t, p, "/?mirror=dr"))
			}
		}()
	}
	for range 4 {
		<-done
	}
}

func BenchmarkFiveThousandPartitions(b *testing.B) {
	for name, f := range map[string]*fake{"well": faked(50, 100, nil), "failed": faked(50, 100, func(_ int, p *mirror.PartitionStatus) {
		p.State, p.Reason = statemachine.Failed, fmt.Sprintf("no space left on device, at %d", p.End)
	})} {
		b.Run(name, func(b *testing.B) {
			p := of(b, f)
			p.sample()
			bytes := 0
			for b.Loop() {
				p.looks = map[string]*looking{} // as if five seconds had gone by
				bytes = len(wants(b, p, "/"))
			}
			b.ReportMetric(float64(bytes), "bytes/page")
		})
	}
}
