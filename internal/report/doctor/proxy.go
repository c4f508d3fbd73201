package doctor

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// checkProxy tells whether the proxy's socket is there.
func checkProxy(c Check, h host, path string) Check {
	info, err := h.stat(path)
	switch {
	case missing(err):
		return c.problem("start the agent before the kubelet, as a systemd unit and never as a pod", "no socket at %s (cri.socket)", path)
	case err != nil:
		return c.unseen(path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return c.problem("remove it, or name another cri.socket", "%s is no socket", path)
	}
	return c.ok("serves at %s", path)
}

// checkKubeletEndpoint tells whether the kubelet was given the proxy's socket.
func checkKubeletEndpoint(c Check, k kubelet, socket string) Check {
	want := "unix://" + socket
	do := "start the kubelet with --container-runtime-endpoint=" + want
	found, where, err := k.endpoint()
	switch {
	case err != nil:
		return c.unseen(where, err)
	case found == "":
		return c.unknown(do, "neither kubeadm-flags.env nor config.yaml in %s names an endpoint", k.root)
	case k.samePath(strings.TrimPrefix(found, "unix://"), socket):
		return c.ok("%s (%s)", found, where)
	}
	return c.problem(do, "%s names %s, not %s", where, found, want)
}

func (h host) samePath(a, b string) bool {
	ra, erra := h.real(a)
	rb, errb := h.real(b)
	return a == b || erra == nil && errb == nil && ra == rb
}

var endpointFlag = regexp.MustCompile(`--container-runtime-endpoint[= ]"?([^" ]+)`)

// endpoint looks for the endpoint in the kubelet's flags, then in its
// configuration.
func (k kubelet) endpoint() (endpoint, where string, err error) {
	file := filepath.Join(k.root, "kubeadm-flags.env")
	data, err := k.read(file)
	if err == nil {
		if f := endpointFlag.FindSubmatch(data); f != nil {
			return string(f[1]), file, nil
		}
	} else if !missing(err) {
		return "", file, err
	}
	file = filepath.Join(k.root, "config.yaml")
	data, err = k.read(file)
	if missing(err) {
		return "", file, nil
	}
	if err != nil {
		return "", file, err
	}
	var config struct {
		Endpoint string `json:"containerRuntimeEndpoint"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return "", file, fmt.Errorf("read it: %w", err)
	}
	return config.Endpoint, file, nil
}
