package filestore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror/filestore"
)

// A running mirror owns its keys; a command line beside it, on the same folder, writes what nobody owns and reads everything.
func Example() {
	temporary, err := os.MkdirTemp("", "filestore")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(temporary)
	dir := filepath.Join(temporary, "state")
	ctx := context.Background()

	running, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer running.Close()
	session, err := running.Open(ctx, "node-1") // whoever had this name can write nothing from now on
	if err != nil {
		log.Fatal(err)
	}
	key := []byte("orders-0")
	err = session.Update(ctx, [][]byte{key}, func(keyedlog.View) ([]keyedlog.Change, error) {
		return []keyedlog.Change{{Key: key, Value: []byte("MIRRORING")}}, nil
	})
	if err != nil {
		log.Fatal(err)
	}

	wish := running.Changed()
	commandLine, err := filestore.Open(dir, filestore.Options{}) // another process, in truth
	if err != nil {
		log.Fatal(err)
	}
	defer commandLine.Close()
	err = commandLine.Update(ctx, func(keyedlog.View) ([]keyedlog.Change, error) {
		return []keyedlog.Change{{Key: []byte("wish/orders"), Value: []byte("stop")}}, nil
	})
	if err != nil {
		log.Fatal(err)
	}

	<-wish
	err = running.Read(ctx, func(v keyedlog.View) error {
		return v.Each(nil, func(r keyedlog.Record) error {
			fmt.Printf("%s: %s, owner %q\n", r.Key, r.Value, r.Writer)
			return nil
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// orders-0: MIRRORING, owner "node-1"
	// wish/orders: stop, owner ""
}
