package properties

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/clustermirror/clustermirror/mirror"
)

func write(t *testing.T, text string, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mirror.properties")
	// The mode is set apart from the file, so that the process's mask does not matter.
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

const sample = `# a mirror
bootstrap.servers = a:9092,\
                    b:9092
mirror.topics.include: orders.*,\u0070ayments
security.protocol SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
  username="alice" password="${file:/run/secrets/source.properties:password}";
mirror.topics.exclude=
`

func TestLoadAndParse(t *testing.T) {
	want := mirror.Settings{
		"bootstrap.servers": "a:9092,b:9092", "mirror.topics.include": "orders.*,payments", "security.protocol": "SASL_SSL", "mirror.topics.exclude": "",
		"sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="${file:/run/secrets/source.properties:password}";`,
	}
	got, err := Parse(strings.NewReader(sample))
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("Parse: %q, %v", got, err)
	}
	got, err = Load(write(t, strings.ReplaceAll(sample, "\n", "\r\n"), 0o644))
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("Load: %q, %v", got, err)
	}
}

func TestErrorsNameTheFileAndTheLine(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	path := write(t, "a=1\nssl.key.password=marker\\u00\n", 0o600)
	for _, f := range []func(string) error{
		func(path string) error { _, err := Load(path); return err },
		func(path string) error { _, err := Check(path); return err },
	} {
		if err := f(path); err == nil || !strings.Contains(err.Error(), path+": line 2") || strings.Contains(err.Error(), "marker") {
			t.Errorf("a broken escape: %v", err)
		}
		if err := f(t.TempDir()); err == nil {
			t.Error("a folder was read")
		}
	}
	for _, text := range []string{"a=marker\xff", strings.Repeat("x", maxFile+1)} {
		if _, err := Parse(strings.NewReader(text)); err == nil || strings.Contains(err.Error(), "marker") {
			t.Errorf("gave %v", err)
		}
	}
	broken := errors.New("broken")
	if _, err := Parse(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("a broken reader gave %v", err)
	}
}

func TestCheck(t *testing.T) {
	secret := "ssl.key.password=marker\nssl.keystore.location=/x\n"
	for _, c := range []struct {
		text string
		mode fs.FileMode
		says []string
	}{
		{sample, 0o644, nil},
		{secret, 0o600, nil},
		{secret, 0o640, []string{"ssl.key.password holds a secret, and other users may read the file (mode 0640); chmod 600"}},
		{secret, 0o604, []string{"(mode 0604)"}},
		{"a=marker\nb=1\na=2\n" + secret, 0o644, []string{"line 3: a was set before; the last one counts", "mode 0644"}},
	} {
		path := write(t, c.text, c.mode)
		got, err := Check(path)
		if err != nil || len(got) != len(c.says) {
			t.Errorf("%q, mode %o: %v, %v", c.text, c.mode, got, err)
			continue
		}
		for i, w := range got {
			if s := w.String(); !strings.HasPrefix(s, path) || !strings.Contains(s, c.says[i]) || strings.Contains(s, "marker") || strings.Contains(s, "\n") {
				t.Errorf("%s does not say %q", s, c.says[i])
			}
		}
	}
}
