package kafkatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// DefaultVersion is the Apache Kafka version that tests run on unless they, or CLUSTERMIRROR_KAFKA_VERSION, name another.
const DefaultVersion = "4.3.1"

// CacheDir is the folder outside the repository where jars are kept and locks lie: $CLUSTERMIRROR_CACHE, or "clustermirror" in the user's cache folder.
func CacheDir() string {
	if d := os.Getenv("CLUSTERMIRROR_CACHE"); d != "" {
		return d
	}
	if d, err := os.UserCacheDir(); err == nil {
		return filepath.Join(d, "clustermirror")
	}
	return filepath.Join(os.TempDir(), "clustermirror")
}

// Libs returns the folder with the jars of one Kafka version. The first caller on a machine fetches them with Maven; the others wait for it.
func Libs(version string) (string, error) {
	if strings.ContainsAny(version, "/\\ \t\n") || version == "" || version[0] == '-' {
		return "", fmt.Errorf("kafkatest: %q is no Kafka version", version)
	}
	dir := filepath.Join(CacheDir(), "kafka-"+version)
	if isDir(dir) {
		return dir, nil
	}
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("kafkatest: Maven is missing, and %s does not exist: install mvn 3.8 or later: %w", dir, err)
	}
	pom, err := findPom()
	if err != nil {
		return "", err
	}
	lock, err := lockFile(filepath.Join(CacheDir(), "install.lock"), nil)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if isDir(dir) {
		return dir, nil
	}
	left, err := filepath.Glob(filepath.Join(CacheDir(), "fetching-*")) // of a process that was killed: the lock is ours
	if err != nil {
		return "", err
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	tmp, err := os.MkdirTemp(CacheDir(), "fetching-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", pom, "dependency:copy-dependencies",
		"-Dkafka.version="+version, "-DoutputDirectory="+tmp, "-DincludeScope=runtime")
	cmd.Env = append(os.Environ(), "MAVEN_OPTS="+os.Getenv("MAVEN_OPTS")+" -Djansi.mode=strip")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err = StartProcess(cmd); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("kafkatest: Maven could not fetch Kafka %s (is Maven Central reachable?): %w\n%s", version, err, out.Bytes())
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	return dir, os.Rename(tmp, dir)
}

func isDir(path string) bool {
	s, err := os.Stat(path)
	return err == nil && s.IsDir()
}

// findPom looks for testdata/kafka/pom.xml in the module around the working folder: a test runs in its package's folder.
func findPom() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		pom := filepath.Join(dir, "testdata", "kafka", "pom.xml")
		if _, err := os.Stat(pom); err == nil {
			return pom, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("kafkatest: testdata/kafka/pom.xml not found above the working folder: run inside the module")
		}
		dir = up
	}
}

func findJava() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if java := filepath.Join(home, "bin", "java"); isExecutable(java) {
			return java, nil
		}
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("kafkatest: Java is missing: install a JDK 17 or later: %w", err)
	}
	return java, nil
}

func isExecutable(path string) bool {
	s, err := os.Stat(path)
	return err == nil && !s.IsDir() && s.Mode()&0o111 != 0
}
