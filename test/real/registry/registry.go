// Package registry serves container images on the loopback interface, for tests with real runtimes.
package registry

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const (
	mediaManifest   = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig     = "application/vnd.oci.image.config.v1+json"
	mediaLayer      = "application/vnd.oci.image.layer.v1.tar"
	extraLayerBytes = 6 << 20 // the bytes of the additional layer of the image extra: more than a gRPC message may have
)

// descriptor is an OCI descriptor: it identifies a blob by its digest.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

// Registry serves images over plain HTTP on the loopback interface. Each image has one static binary. A runtime can
// pull the images without a network or an import tool.
type Registry struct {
	server    *http.Server
	address   string            // host and port of the server
	blobs     map[string][]byte // layers, image configurations and manifests, by digest
	manifests map[string]string // the digests of the manifests, by the name of the image
}

// Start serves three images: probe with the given static binary, pause with the same binary and the argument pause, and
// extra. The image extra has an additional layer, so that a pull of it transfers data.
func Start(binary []byte) (*Registry, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Registry{address: listener.Addr().String(), blobs: map[string][]byte{}, manifests: map[string]string{}}
	layer, err := layerOf("probe", binary)
	if err != nil {
		return nil, err
	}
	more, err := layerOf("more", bytes.Repeat([]byte("some more. "), extraLayerBytes/11))
	if err != nil {
		return nil, err
	}
	for _, image := range []struct {
		name    string
		command []string
		layers  [][]byte
	}{
		{"probe", []string{"/probe"}, [][]byte{layer}},
		{"pause", []string{"/probe", "pause"}, [][]byte{layer}},
		{"extra", []string{"/probe"}, [][]byte{layer, more}},
	} {
		if err := r.add(image.name, image.command, image.layers...); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v2/{name}/manifests/{ref}", r.manifest)
	mux.HandleFunc("GET /v2/{name}/blobs/{ref}", r.blob)
	// The client first tries TLS, which the server would log for each connection.
	r.server = &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0)}
	go r.server.Serve(listener)
	return r, nil
}

// Close stops the server.
func (r *Registry) Close() { r.server.Close() }

// Address returns host and port of the server.
func (r *Registry) Address() string { return r.address }

// Image returns the reference of an image by its name.
func (r *Registry) Image(name string) string { return r.address + "/" + name + ":1" }

// add adds an image to the registry.
func (r *Registry) add(name string, command []string, layers ...[]byte) error {
	var ids []string
	var described []descriptor
	for _, layer := range layers {
		ids = append(ids, digest(layer))
		described = append(described, r.store(mediaLayer, layer))
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": command, "Env": []string{"PATH=/"}, "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest, "config": r.store(mediaConfig, config), "layers": described,
	})
	if err != nil {
		return err
	}
	r.manifests[name] = r.store(mediaManifest, manifest).Digest
	return nil
}

// Archive returns an image as a tar archive with an OCI image layout. An import gives the image the name in ref.
func (r *Registry) Archive(name, ref string) ([]byte, error) {
	manifest := r.manifests[name]
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{map[string]any{
		"mediaType": mediaManifest, "digest": manifest, "size": len(r.blobs[manifest]),
		"annotations": map[string]string{"io.containerd.image.name": ref},
	}}})
	if err != nil {
		return nil, err
	}
	var content struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(r.blobs[manifest], &content); err != nil {
		return nil, err
	}
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": index}
	for _, d := range append(content.Layers, content.Config, descriptor{Digest: manifest}) {
		files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")] = r.blobs[d.Digest]
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if err := put(w, file, 0o644, files[file]); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// put writes a regular file to a tar archive.
func put(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// store adds a blob to the registry, and returns its descriptor.
func (r *Registry) store(mediaType string, content []byte) descriptor {
	d := descriptor{mediaType, digest(content), len(content)}
	r.blobs[d.Digest] = content
	return d
}

// manifest answers a request for the manifest of an image, by the name of the image or by a digest.
func (r *Registry) manifest(w http.ResponseWriter, req *http.Request) {
	ref := req.PathValue("ref")
	if !strings.HasPrefix(ref, "sha256:") {
		ref = r.manifests[req.PathValue("name")]
	}
	r.serve(w, ref, mediaManifest)
}

// blob answers a request for a blob by its digest.
func (r *Registry) blob(w http.ResponseWriter, req *http.Request) {
	r.serve(w, req.PathValue("ref"), "application/octet-stream")
}

// serve answers a request with the blob that has the digest.
func (r *Registry) serve(w http.ResponseWriter, digest, mediaType string) {
	content, ok := r.blobs[digest]
	if !ok {
		http.Error(w, "the registry has no blob with the digest "+strconv.Quote(digest), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.Write(content)
}

// layerOf makes an uncompressed layer with a program, and with the directories on which a runtime mounts file systems.
func layerOf(name string, program []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"dev", "etc", "proc", "sys", "tmp"} {
		if err := w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	if err := put(w, name, 0o755, program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }
