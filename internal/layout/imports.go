package layout

import (
	"fmt"
	"slices"
	"strings"
)

// Module is this module's path.
const Module = "github.com/clustermirror/clustermirror"

// Pure are the packages without goroutine, clock, I/O and client.
var Pure = []string{"internal/batch", "producerstate", "logtrunc", "txnabort", "txncut", "statemachine", "internal/partition", "internal/closest", "internal/secret", "internal/clustermetadata",
	"internal/clienthistory", "internal/simulator/model"}

// outward are standard packages that a pure one must not import: they reach the network, files, processes, or the machine's randomness.
var outward = []string{"net", "os", "syscall", "log", "io/ioutil", "crypto/rand", "plugin", "testing", "runtime", "embed", "database/sql", "unsafe"}

// within says whether path is root or lies below it.
func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

func withinAny(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return within(path, r) })
}

// MayImport says whether the package (its path inside the module, "." for the root) may import path, and if not, which rule it breaks. Tests are not bound by it.
func MayImport(pkg, path string) (rule string, ok bool) {
	own, inside := strings.CutPrefix(path, Module+"/")
	standard := !inside && !strings.Contains(strings.SplitN(path, "/", 2)[0], ".")
	client := strings.HasPrefix(path, "github.com/twmb/franz-go")
	no := func(format string, args ...any) (string, bool) { return fmt.Sprintf(format, args...), false }

	if slices.Contains(Pure, pkg) {
		below := map[string][]string{
			"producerstate":      {"internal/batch"},
			"logtrunc":           {"internal/batch"},
			"txnabort":           {"internal/batch", "producerstate"},
			"txncut":             {"internal/batch", "producerstate"},
			"internal/partition": {"internal/batch", "producerstate", "logtrunc", "txnabort", "statemachine"},

			"internal/clustermetadata": {"internal/batch", "statemachine"},
		}
		switch {
		case inside && !slices.Contains(below[pkg], own):
			return no("the pure package %s may import of this module only %v", pkg, below[pkg])
		case !inside && !standard:
			return no("a pure package imports the standard library only")
		case standard && withinAny(path, outward...):
			return no("a pure package does not reach outside: %s", path)
		}
		return "", true
	}
	if inside && within(own, "examples") {
		return no("nobody imports an example")
	}
	if inside && within(own, "internal/kafkatest") && !withinAny(pkg, "internal/kafkatest", "internal/bench", "internal/long", "examples/two-clusters") {
		return no("only tests, measurements and the demonstration start Kafka")
	}
	if pkg == "internal/kafkaconfig" && (inside && !slices.Contains(Pure, own) || !inside && !standard && !client && !within(path, "github.com/magiconair/properties")) {
		return no("settings of connections need the client, a reader of properties files and the standard library only")
	}
	if inside && own == "internal/kafkaconfig" && !withinAny(pkg, "mirror/kafkasource", "mirror/kafkastore", "mirror/kraft", "mirror/properties", "node", "examples/kafka-mirror") {
		return no("only what connects to Kafka or reads its settings knows Kafka's property names")
	}
	if path == "testing" && !withinAny(pkg, "mirror/logtest", "mirror/mirrortest", "statemachine/storetest", "keyedlog/keyedlogtest", "internal/kafkatest/lives") {
		return no("only conformance kits, and what tests of whole lives share, import testing")
	}
	switch {
	case pkg == ".":
		return no("the root package is a manual and imports nothing")
	case pkg == "mirror":
		switch {
		case client:
			return no("mirror knows no client")
		case inside && within(own, "mirror"):
			return no("arrows point from the leaves to mirror")
		case !inside && !standard:
			return no("mirror imports the standard library and the pure packages only")
		}
	case within(pkg, "mirror"):
		leaf := leafOf(pkg)
		kit := leaf == "mirror/logtest" || leaf == "mirror/mirrortest"
		whole := leaf == "mirror/mirrortest" // whole mirrors, between clusters that speak the protocol
		if inside && strings.HasPrefix(own, "mirror/") && leafOf(own) != leaf && !(kit && own == "mirror/memlog") && !(whole && own == "mirror/kafkasource") && !(leaf == "mirror/reconcile" && own == "mirror/verify") {
			return no("a leaf of mirror imports no other leaf (the kits may import memlog, the harness kafkasource, and reconcile reads both sides as verify does)")
		}
		if inside && within(own, "internal/partition") {
			return no("the core of a partition is mirror's alone")
		}
	case within(pkg, "keyedlog"):
		if inside && own != "statemachine" && own != "keyedlog" || !inside && !standard {
			return no("a keyed log needs the standard library and the codecs of statemachine only")
		}
	case within(pkg, "statemachine"):
		if inside && own != "statemachine" {
			return no("the store's kit needs statemachine only")
		}
	case within(pkg, "examples"):
		if inside && within(own, "internal") && !withinAny(pkg, "examples/kafka-mirror", "examples/two-clusters") {
			return no("an example uses what a user can use")
		}
	}
	return "", true
}

// leafOf is the folder directly under mirror.
func leafOf(pkg string) string {
	parts := strings.SplitN(pkg, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}
