// Package properties reads a mirror's or a node's settings from Java properties files, as Kafka's own tools have them.
//
// What java.util.Properties reads is read the same way: comments with # or !, keys that end at '=', ':' or a space, \-escapes, lines that go on after a backslash at their end, the
// last one of several equal keys. There are two differences. A file has to be UTF-8: Kafka's tools take every byte for a character of ISO-8859-1, which is the same for ASCII and
// gives other characters for the rest, in passwords too; a file that is not UTF-8 is refused and not guessed at. And references ${env:NAME}, ${file:/path:key} and
// ${directory:/path:file} are left in the values: they are read with each connection, so that a changed secret is taken up (see mirror/kafkasource).
//
// An error names a file and a line and repeats nothing of the text, which may be a secret.
package properties

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/mirror"
)

// maxFile is the largest file that is read, in bytes.
const maxFile = 1 << 20

// Parse reads settings from r to its end. Names and values are not checked: that is the business of whoever uses them.
func Parse(r io.Reader) (mirror.Settings, error) {
	p, err := read(r)
	if err != nil {
		return nil, fmt.Errorf("properties: %w", err)
	}
	return p.Values, nil
}

// Load reads settings from a file. Check tells what is doubtful about the file.
func Load(path string) (mirror.Settings, error) {
	p, _, err := load(path)
	return p.Values, err
}

// Warning is something doubtful about a file, which is no error.
type Warning struct {
	Path    string
	Line    int    // 0: the file as a whole
	Setting string // its name
	Problem string
	Advice  string // what to do
}

// String is the warning in one line.
func (w Warning) String() string {
	at := w.Path
	if w.Line > 0 {
		at = fmt.Sprintf("%s, line %d", w.Path, w.Line)
	}
	return fmt.Sprintf("%s: %s %s; %s", at, w.Setting, w.Problem, w.Advice)
}

// Check reads a file and says what is doubtful about it: settings that come more than once, in the file's order, and a secret that stands in the file itself while users other than
// its owner may read it.
func Check(path string) ([]Warning, error) {
	p, info, err := load(path)
	if err != nil {
		return nil, err
	}
	var warnings []Warning
	for _, r := range p.Repeated {
		warnings = append(warnings, Warning{Path: path, Line: r.Line, Setting: r.Key, Problem: "was set before", Advice: "the last one counts; delete the others"})
	}
	const others = 0o044 // group and everybody: read
	if name, literal := kafkaconfig.HasLiteralSecret(p.Values); literal && info.Mode().Perm()&others != 0 {
		warnings = append(warnings, Warning{
			Path: path, Setting: name, Problem: fmt.Sprintf("holds a secret, and other users may read the file (mode %04o)", info.Mode().Perm()),
			Advice: "chmod 600, or keep the secret elsewhere and refer to it: ${env:NAME}, ${file:/path:key}, ${directory:/path:file}",
		})
	}
	return warnings, nil
}

func load(path string) (p kafkaconfig.Properties, info os.FileInfo, err error) {
	f, err := os.Open(path)
	if err != nil {
		return p, nil, fmt.Errorf("properties: %w", err)
	}
	defer f.Close()
	// Of the file that was opened, whatever takes its place meanwhile.
	if info, err = f.Stat(); err == nil {
		p, err = read(f)
	}
	if err != nil {
		return kafkaconfig.Properties{}, nil, fmt.Errorf("properties: %s: %w", path, err)
	}
	return p, info, nil
}

func read(r io.Reader) (kafkaconfig.Properties, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return kafkaconfig.Properties{}, err
	}
	if len(b) > maxFile {
		return kafkaconfig.Properties{}, errors.New("larger than 1 MiB: is it a properties file?")
	}
	return kafkaconfig.ReadProperties(b)
}
