package kafkaconfig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/clustermirror/clustermirror/internal/secret"
)

// maxFile bounds what is read of a file: secrets, certificates and properties are small.
const maxFile = 1 << 20

// resolve replaces the references in a value. where is the setting, with the option of a login where that helps.
func resolve(where, value string) (string, error) {
	return secret.Replace(value, func(provider, path, key string) (string, error) { return look(where, provider, path, key) })
}

// look reads what one reference names.
func look(where, provider, path, key string) (string, error) {
	switch provider {
	case "env":
		v, ok := os.LookupEnv(key)
		if !ok {
			return "", &Error{Setting: where, Problem: "the environment variable " + key + " is not set", Advice: "set it for this process"}
		}
		return v, nil
	case "file":
		b, err := readFile(path)
		if err != nil {
			return "", &Error{Setting: where, Problem: "the file of a reference cannot be read", Err: err, Advice: "a reference to a file is ${file:/path/to/file.properties:key}"}
		}
		p, err := ReadProperties(b)
		if err != nil {
			return "", &Error{Setting: where, Problem: path, Err: err, Advice: "the file of a reference has to be a Java properties file"}
		}
		v, ok := p.Values[key]
		if !ok {
			return "", &Error{Setting: where, Problem: fmt.Sprintf("%s has no key %s", path, key), Advice: "add it there, or correct the reference"}
		}
		return v, nil
	case "directory":
		if key == "" || key != filepath.Base(key) || key == ".." || key == "." {
			return "", &Error{Setting: where, Problem: "the last part of a reference to a directory is not the name of a file in it", Advice: "write ${directory:/path:file}"}
		}
		b, err := readFile(filepath.Join(path, key))
		if err != nil {
			return "", &Error{Setting: where, Problem: "the file of a reference cannot be read", Err: err, Advice: "a reference to a whole file is ${directory:/path:file}"}
		}
		// Editors end a file with a line end, which is never meant to be a part of a password. Kafka keeps it.
		return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
	}
	// What stands before the colon is not repeated: it may be the middle of a password that is no reference.
	return "", &Error{
		Setting: where, Problem: "holds ${…:…} with a provider that is none of env, file and directory",
		Advice: "correct the reference; a password that has these characters in it has to be kept in a file and referred to",
	}
}

// readFile reads a small regular file: a pipe or device could keep a connection waiting.
func readFile(path string) ([]byte, error) {
	if path == "" {
		return nil, errors.New("no path")
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return b, err
}
