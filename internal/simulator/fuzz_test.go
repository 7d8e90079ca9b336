package simulator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzScript plays any text: it is refused, or a run that ends, twice alike. A script reads back from its own text.
func FuzzScript(f *testing.F) {
	for seed := range uint64(6) {
		f.Add(shortened(Seed(seed, false).Script).String())
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("config brokers=0\n")
	f.Add("# nothing\n\nconfig\nno such op\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4<<10 {
			return // a run costs what its ops say, not what its text is long
		}
		s, err := ParseScript(text)
		if err != nil {
			return
		}
		s = shortened(s)
		again, err := ParseScript(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q reads back as %q, %v", s, again, err)
		}
		first := Play(s, true)
		second := Play(again, true)
		if first.Transcript != second.Transcript || first.Step != second.Step || (first.Err == nil) != (second.Err == nil) {
			t.Fatalf("played twice it ends at step %d (%v) and at step %d (%v):\n%s\n%s", first.Step, first.Err, second.Step, second.Err, first.Transcript, second.Transcript)
		}
		if first.Err != nil && strings.TrimSpace(first.Err.Error()) == "" {
			t.Fatal("an error that says nothing")
		}
	})
}

// shortened is the first ops of a script.
func shortened(s Script) Script {
	const most = 60
	s.Ops = s.Ops[:min(len(s.Ops), most)]
	return s
}
