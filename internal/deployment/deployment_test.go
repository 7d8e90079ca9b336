package deployment

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"debug/elf"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/properties"
	"github.com/clustermirror/clustermirror/node"
)

const (
	root   = "../.."
	folder = root + "/examples/kafka-mirror/deploy/"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(folder + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// one is what the only match of pattern has in its parentheses.
func one(t *testing.T, text, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
	if len(found) != 1 {
		t.Fatalf("%q is there %d times", pattern, len(found))
	}
	return found[0][1]
}

// pemFile is a certificate with its key, one file for whatever the samples name.
var pemFile = sync.OnceValues(func() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sample"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
})

// here writes a sample to a file of the test's own, with the folder of its certificates and secrets in place of /etc/kafka-mirror.
func here(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	keys, err := pemFile()
	if err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "/etc/kafka-mirror/secrets/", "/etc/kafka-mirror/")
	for _, name := range regexp.MustCompile(`/etc/kafka-mirror/([\w-]+\.pem)`).FindAllStringSubmatch(text, -1) {
		if err := os.WriteFile(filepath.Join(dir, name[1]), keys, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secrets := ""
	for _, name := range regexp.MustCompile(`secrets\.properties:([\w-]+)`).FindAllStringSubmatch(text, -1) {
		secrets += name[1] + "=secret\n"
	}
	file := filepath.Join(dir, "sample.properties")
	for name, content := range map[string]string{"secrets.properties": secrets, "sample.properties": strings.ReplaceAll(text, "/etc/kafka-mirror/", dir+"/")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

var offered = regexp.MustCompile(`(?m)^#([a-z][\w.]*)=(.*)$`)

// named are the settings of a sample, those that are commented out too.
func named(t *testing.T, text string) (names []string) {
	t.Helper()
	settings, err := properties.Parse(strings.NewReader(offered.ReplaceAllString(text, "$1=$2")))
	if err != nil {
		t.Fatal(err)
	}
	for name := range settings {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestNodeSample(t *testing.T) {
	text := read(t, "node.properties")
	file, err := node.ReadFile(here(t, text))
	if err != nil {
		t.Fatalf("as it is: %v", err)
	}
	if w := file.Warnings(); len(w) > 0 {
		t.Errorf("as it is: %q", w)
	}
	// Each setting that is commented out, by itself: some exclude each other. What is said of one is then about its value or its company, but never that it is not known.
	for _, m := range offered.FindAllStringSubmatch(text, -1) {
		_, err := node.ReadFile(here(t, strings.Replace(text, m[0]+"\n", m[1]+"="+m[2]+"\n", 1)))
		var wrong *node.FileError
		if err != nil && (!errors.As(err, &wrong) || regexp.MustCompile(`not known|does not know|belongs to a mirror`).MatchString(err.Error())) {
			t.Errorf("%s: %v", m[0], err)
		}
	}
	// The listener for clients is three settings together.
	readable := text
	for _, m := range regexp.MustCompile(`(?m)^#   (([\w.]+)=.*)$`).FindAllStringSubmatch(text, -1) {
		if line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(m[2]) + `=.*$`); line.MatchString(readable) {
			readable = line.ReplaceAllLiteralString(readable, m[1])
		} else {
			readable += m[1] + "\n"
		}
	}
	if !strings.Contains(readable, "\nlisteners=INTERNAL://0.0.0.0:9990,CLIENT://") {
		t.Error("there is no listener for clients")
	} else if file, err := node.ReadFile(here(t, readable)); err != nil || file.Warnings() != nil {
		t.Errorf("with a listener for clients: %v", err)
	}
	// A name that is none is found in the same way.
	if _, err := node.ReadFile(here(t, text+"mirror.window.byte=1\n")); err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("a mistyped name: %v", err)
	}
	names := named(t, text)
	for _, k := range node.Keys() {
		if strings.ContainsAny(k.Name, "*<") { // a family: one of it is enough
			prefix, _, _ := strings.Cut(strings.SplitN(k.Name, ",", 2)[0], "*")
			prefix, rest, _ := strings.Cut(prefix, "<listener>")
			if !slices.ContainsFunc(names, func(n string) bool {
				return strings.HasPrefix(n, prefix) && strings.Contains(n, strings.TrimSuffix(rest, ","))
			}) {
				t.Errorf("nothing of %s is in it", k.Name)
			}
			continue
		}
		if !slices.Contains(names, k.Name) {
			t.Errorf("%s is not in it: %s", k.Name, k.Doc)
		}
		for _, m := range offered.FindAllStringSubmatch(text, -1) {
			if m[1] == k.Name && k.Default != "" && m[2] != k.Default && !strings.Contains(k.Default, " ") && k.Name != "inter.broker.listener.name" {
				t.Errorf("%s=%s is shown as the default, which is %s", m[1], m[2], k.Default)
			}
		}
	}
}

func TestMirrorSample(t *testing.T) {
	text := read(t, "mirror.properties")
	settings, err := properties.Load(here(t, text))
	if err != nil {
		t.Fatal(err)
	}
	if err := settings.Check(mirror.MirrorSetting, mirror.ConnectionSetting); err != nil {
		t.Errorf("as it is: %v", err)
	}
	for _, m := range offered.FindAllStringSubmatch(text, -1) {
		if err := (mirror.Settings{m[1]: m[2]}).Check(mirror.MirrorSetting, mirror.ConnectionSetting); err != nil && !strings.Contains(err.Error(), "needs") {
			t.Errorf("%s: %v", m[0], err)
		}
	}
	names := named(t, text)
	for _, d := range mirror.SettingDefinitions() {
		if d.Level == mirror.NodeSetting {
			continue
		}
		prefix := strings.TrimSuffix(d.Name, "<name>")
		if !slices.ContainsFunc(names, func(n string) bool { return n == d.Name || prefix != d.Name && strings.HasPrefix(n, prefix) }) {
			t.Errorf("%s is not in it: %s", d.Name, d.Doc)
		}
		for _, m := range offered.FindAllStringSubmatch(text, -1) {
			if m[1] == d.Name && d.Default != "" && m[2] != d.Default {
				t.Errorf("%s=%s is shown as the default, which is %s", m[1], m[2], d.Default)
			}
		}
	}
}

// blocks are the files inside the manifest, by name.
func blocks(t *testing.T, manifest string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  (\S+\.properties): \|\n((?:    .*\n)+)`).FindAllStringSubmatch(manifest, -1) {
		all[m[1]] = strings.ReplaceAll("\n"+m[2], "\n    ", "\n")[1:]
	}
	return all
}

func TestManifest(t *testing.T) {
	manifest := read(t, "statefulset.yaml")
	all := blocks(t, manifest)
	replicas, err := strconv.Atoi(one(t, manifest, `(?m)^  replicas: (\d+)$`))
	if err != nil || replicas != 2 || len(all) != replicas+1 {
		t.Fatalf("%d replicas, files %v: one process works and one stands by, each has a file, and there is one of secrets", replicas, len(all))
	}
	var files [2]string
	for i := range files {
		name := "kafka-mirror-" + strconv.Itoa(i)
		text := all[name+".properties"]
		file, err := node.ReadFile(here(t, text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if w := file.Warnings(); len(w) > 0 {
			t.Errorf("%s: %q", name, w)
		}
		if port := one(t, text, `(?m)^mirror\.http\.listener=0\.0\.0\.0:(\d+)$`); one(t, manifest, `(?m)^            - name: http\n +containerPort: (\d+)$`) != port || one(t, manifest, `prometheus\.io/port: "(\d+)"`) != port {
			t.Errorf("%s: http at %s", name, port)
		}
		if port := one(t, text, `(?m)^listeners=INTERNAL://0\.0\.0\.0:(\d+)$`); one(t, manifest, `(?m)^            - name: brokers\n +containerPort: (\d+)$`) != port {
			t.Errorf("%s: brokers at %s", name, port)
		}
		secrets := all["secrets.properties"]
		for _, m := range regexp.MustCompile(`secrets\.properties:([\w-]+)`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(secrets, m[1]+"=") {
				t.Errorf("%s: the Secret has no %s", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`/etc/kafka-mirror/(secrets/[\w.-]+)`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(manifest, "path: "+m[1]+"}") {
				t.Errorf("%s: nothing is mounted at %s", name, m[1])
			}
		}
		files[i] = strings.ReplaceAll(text, name, "NAME")
	}
	if files[0] != files[1] {
		t.Errorf("the two files differ in more than the name:\n%s\n%s", files[0], files[1])
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if !strings.Contains(manifest, "path: "+path+"\n") {
			t.Errorf("nobody asks %s", path)
		}
	}
	longEnough(t, "terminationGracePeriodSeconds", one(t, manifest, `terminationGracePeriodSeconds: (\d+)`))
	if !strings.Contains(manifest, "CHANGE-ME\n") || regexp.MustCompile(`password="[^$]`).MatchString(manifest) {
		t.Error("a password stands in it")
	}
}

// longEnough holds a time in which the process has to end: it waits twice for what is under way, at most.
func longEnough(t *testing.T, what, seconds string) {
	t.Helper()
	n, err := strconv.Atoi(seconds)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range node.Keys() {
		if k.Name == "mirror.drain.timeout.ms" {
			drain, err := strconv.Atoi(k.Default)
			if err != nil {
				t.Fatal(err)
			}
			if n*1000 < 2*drain+20_000 {
				t.Errorf("%s is %d s, and the end may take twice %d ms and some more", what, n, drain)
			}
			return
		}
	}
	t.Error("there is no mirror.drain.timeout.ms")
}

func TestUnit(t *testing.T) {
	unit := read(t, "kafka-mirror.service")
	longEnough(t, "TimeoutStopSec", one(t, unit, `(?m)^TimeoutStopSec=(\d+)$`))
	if got := one(t, unit, `(?m)^ExecReload=(.*)$`); got != "/bin/kill -HUP $MAINPID" {
		t.Errorf("reload is %q", got)
	}
	config := one(t, unit, `(?m)^ExecStart=/\S+/kafka-mirror run --config (\S+)$`)
	if config != "/etc/kafka-mirror/node.properties" {
		t.Errorf("it reads %s", config)
	}
	if state := one(t, read(t, "node.properties"), `(?m)^mirror\.node\.folder=(.*)$`); "/var/lib/"+one(t, unit, `(?m)^StateDirectory=(.*)$`) != state {
		t.Errorf("the identity is to lie in %s", state)
	}
	for _, line := range []string{"LimitCORE=0", "Restart=on-failure", "NoNewPrivileges=yes", "ProtectSystem=strict", "StateDirectoryMode=0700"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Logf("systemd-analyze is missing: the unit was compared with the code only")
		return
	}
	file := filepath.Join(t.TempDir(), "kafka-mirror.service")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	verify := func(text string) string {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(analyze, "verify", file).CombinedOutput()
		if err != nil && len(out) == 0 {
			t.Fatal(err)
		}
		return string(out)
	}
	there := strings.Replace(unit, "/usr/local/bin/kafka-mirror ", self+" ", 1)
	if out := verify(there); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	if out := verify(strings.Replace(there, "Restart=on-failure", "Restart=maybe", 1)); !strings.Contains(out, "maybe") {
		t.Errorf("systemd-analyze verify says nothing of a setting that is wrong: %q", out)
	}
}

// The command is built as the Containerfile builds it, and ends with the statuses that the unit knows.
func TestCommand(t *testing.T) {
	container := read(t, "Containerfile")
	flags := strings.Fields(one(t, container, `(?m)^RUN CGO_ENABLED=0 go build (.*) -o /kafka-mirror \./examples/kafka-mirror$`))
	if !regexp.MustCompile(`(?m)^USER [1-9]\d*:[1-9]\d*$`).MatchString(container) || !strings.Contains(container, "\nFROM scratch\n") {
		t.Error("the image has a root or a shell")
	}
	ports := one(t, container, `(?m)^EXPOSE (.*)$`)
	sample := read(t, "node.properties")
	if want := one(t, sample, `(?m)^listeners=INTERNAL://[^:]*:(\d+)$`) + " " + one(t, sample, `(?m)^mirror\.http\.listener=[^:]*:(\d+)$`); ports != want {
		t.Errorf("the image has ports %s, node.properties %s", ports, want)
	}
	if version := one(t, container, `FROM docker\.io/library/golang:([\d.]+) `); !strings.HasPrefix(one(t, text(t, root+"/go.mod"), `(?m)^go (\S+)$`), version) {
		t.Errorf("it is built with Go %s, go.mod says another", version)
	}
	binary := filepath.Join(t.TempDir(), "kafka-mirror")
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", binary, "./examples/kafka-mirror")...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if f, err := elf.Open(binary); err == nil {
		defer f.Close()
		if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Error("the binary needs libraries, and the image has none")
		}
	}
	never := strings.Fields(one(t, read(t, "kafka-mirror.service"), `(?m)^RestartPreventExitStatus=(.*)$`))
	wrong := here(t, sample+"mirror.window.byte=1\n")
	out, err := exec.Command(binary, "run", "--config", wrong).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !slices.Contains(never, strconv.Itoa(exit.ExitCode())) {
		t.Errorf("with a mistake in its file it ends with %v, which is none of %v\n%s", err, never, out)
	}
	thrownOut := one(t, text(t, root+"/examples/kafka-mirror/output.go"), `node\.ErrThrownOut\):\n\s+return (\d+)\n`)
	if !slices.Contains(never, thrownOut) || len(never) != 2 {
		t.Errorf("thrown out of the cluster it ends with %s; not started again are %v", thrownOut, never)
	}
}

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
