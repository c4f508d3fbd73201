// Command guest runs in a virtual machine of a test. It carries out the requests of the test, which runs on the host.
// Package wire describes the protocol. The program is static and needs only a kernel.
package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/test/vm/wire"
)

func main() {
	listen := flag.String("listen", fmt.Sprintf(":%d", wire.Port), "TCP address to serve")
	flag.Parse()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("POST /exec", execute)
	mux.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) { answer(w, get(w, r.FormValue("path"))) })
	mux.HandleFunc("PUT /file", func(w http.ResponseWriter, r *http.Request) {
		answer(w, put(r.FormValue("path"), r.FormValue("mode"), r.Body))
	})
	mux.HandleFunc("GET /tar", func(w http.ResponseWriter, r *http.Request) { pack(w, r.URL.Query()["path"]) })
	mux.HandleFunc("POST /clock", func(w http.ResponseWriter, r *http.Request) { answer(w, setClock(r.FormValue("ns"))) })
	mux.HandleFunc("GET /dial", dial)
	server := &http.Server{Addr: *listen, Handler: mux, ReadHeaderTimeout: time.Minute}
	log.Fatal(server.ListenAndServe())
}

// answer sends an error to the caller as text. If err is nil, it sends nothing.
func answer(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// get sends the content of a file. It reads to the end of the file, because kernel files report the size 0.
func get(w http.ResponseWriter, path string) error {
	b, err := os.ReadFile(path)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// put replaces a file atomically, so that a reader gets either the old or the new content. mode has the permission bits
// in octal.
func put(path, mode string, content io.Reader) error {
	bits, err := strconv.ParseUint(mode, 8, 32)
	if err != nil {
		return fmt.Errorf("mode %q: %w", mode, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".put-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, content)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(f.Name(), fs.FileMode(bits))
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

// pack sends a tar archive of all readable files below the paths. It ignores errors, because it collects logs after a
// failed test.
func pack(w io.Writer, paths []string) {
	t := tar.NewWriter(w)
	defer t.Close()
	for _, root := range paths {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if b, readable := os.ReadFile(path); readable == nil {
					return add(t, path, b)
				}
			}
			return nil
		})
	}
}

// add adds a file to the archive.
func add(t *tar.Writer, path string, content []byte) error {
	err := t.WriteHeader(&tar.Header{Name: path[1:], Mode: 0o644, Size: int64(len(content)), ModTime: time.Now()})
	if err == nil {
		_, err = t.Write(content)
	}
	return err
}

// setClock sets the clock of the guest. text has the nanoseconds since 1970.
func setClock(text string) error {
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return err
	}
	now := unix.NsecToTimespec(ns)
	return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
}

// dial turns the HTTP connection into a connection to a socket of the guest.
func dial(w http.ResponseWriter, r *http.Request) {
	var d net.Dialer
	there, err := d.DialContext(r.Context(), r.FormValue("network"), r.FormValue("address"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "the server cannot use this HTTP connection as a stream", http.StatusInternalServerError)
		return
	}
	here, buffered, err := hijacker.Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	fmt.Fprintf(here, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", wire.Upgrade)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(there, buffered)
		there.Close()
	}()
	_, _ = io.Copy(here, there)
	here.Close()
	<-done
}

// execute runs the command in the request, and sends the result.
func execute(w http.ResponseWriter, r *http.Request) {
	var c wire.Command
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || len(c.Argv) == 0 {
		http.Error(w, fmt.Sprintf("the request has no command with arguments (error: %v)", err), http.StatusBadRequest)
		return
	}
	result := run(r.Context(), c)
	_ = json.NewEncoder(w).Encode(result)
}
