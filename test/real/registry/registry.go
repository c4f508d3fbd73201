// Package registry serves a test's container images on the loopback.
package registry

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
)

const (
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

// Registry serves images of one static binary each, over plain HTTP on the loopback. Pulling from it is all that is
// needed to bring images in: no import tool, no network.
type Registry struct {
	server    *http.Server
	address   string
	blobs     map[string][]byte // by digest, manifests too
	manifests map[string]string // name -> digest
}

// Start serves the images probe, whose program is the given static binary, and pause, the same with the argument pause.
func Start(binary []byte) (*Registry, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Registry{address: listener.Addr().String(), blobs: map[string][]byte{}, manifests: map[string]string{}}
	layer, err := layerOf(binary)
	if err != nil {
		return nil, err
	}
	for name, command := range map[string][]string{"probe": {"/probe"}, "pause": {"/probe", "pause"}} {
		if err := r.add(name, layer, command); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v2/{name}/manifests/{ref}", r.manifest)
	mux.HandleFunc("GET /v2/{name}/blobs/{ref}", r.blob)
	// The client tries TLS first, which the server would log for each connection.
	r.server = &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0)}
	go r.server.Serve(listener)
	return r, nil
}

// Close ends the serving.
func (r *Registry) Close() { r.server.Close() }

// Address is the host and port that it listens on.
func (r *Registry) Address() string { return r.address }

// Image is the reference of an image by its name.
func (r *Registry) Image(name string) string { return r.address + "/" + name + ":1" }

func (r *Registry) add(name string, layer []byte, command []string) error {
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": command, "Env": []string{"PATH=/"}, "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest,
		"config": r.store(mediaConfig, config), "layers": []descriptor{r.store(mediaLayer, layer)},
	})
	if err != nil {
		return err
	}
	r.manifests[name] = r.store(mediaManifest, manifest).Digest
	return nil
}

func (r *Registry) store(mediaType string, content []byte) descriptor {
	d := descriptor{mediaType, digest(content), len(content)}
	r.blobs[d.Digest] = content
	return d
}

func (r *Registry) manifest(w http.ResponseWriter, req *http.Request) {
	ref := req.PathValue("ref")
	if !strings.HasPrefix(ref, "sha256:") {
		ref = r.manifests[req.PathValue("name")]
	}
	r.serve(w, ref, mediaManifest)
}

func (r *Registry) blob(w http.ResponseWriter, req *http.Request) {
	r.serve(w, req.PathValue("ref"), "application/octet-stream")
}

func (r *Registry) serve(w http.ResponseWriter, digest, mediaType string) {
	content, ok := r.blobs[digest]
	if !ok {
		http.Error(w, "not here", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.Write(content)
}

// layerOf makes an uncompressed layer: the binary and the folders a runtime mounts over.
func layerOf(binary []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"dev", "etc", "proc", "sys", "tmp"} {
		if err := w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	err := w.WriteHeader(&tar.Header{Name: "probe", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(binary))})
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(binary); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }
