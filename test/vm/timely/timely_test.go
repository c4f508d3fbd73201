package timely

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/cluster/objects"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

func TestMain(m *testing.M) { vm.Main(m) }

var many = flag.Int("pods", 20, "how many pods are created")

const (
	name       = "n1"
	config     = "/var/lib/kubelet/config.yaml"
	kubeconfig = "/etc/kubernetes/kubelet.conf"
	admin      = "/etc/kubernetes/admin.conf"
	podsSocket = "/var/lib/kubelet/pods-api/pods-api.sock"
)

// plugin makes a node ready: its pods use the host's network.
const plugin = `#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
ADD) echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.5/24"}]}' ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
esac
`

// BenchmarkTimely measures how long each source takes, from the API server's answer to the creation of a
// pod, until it has the pod. One process in the guest, which has the clock, asks all sources at the same
// time. The guest is emulated: its kubelet and containerd are several times slower than on a real node, and
// the API server outside is not.
func BenchmarkTimely(b *testing.B) {
	p := controlplane.Start(b, "--disable-admission-plugins=ServiceAccount")
	m := vm.Start(b, vm.Guest{Stage: vm.Containerd})
	for user, path := range map[string]string{name: kubeconfig, controlplane.Admin: admin} {
		m.Put(path, 0o600, reach(b, p, user))
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + vm.CRISocket, "cgroupDriver": "cgroupfs", "featureGates": map[string]bool{"PodsAPI": true},
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"failSwapOn":     false, "makeIPTablesUtilChains": false, "resolvConf": "",
		"enforceNodeAllocatable": []string{"pods"}, "evictionHard": map[string]any{"memory.available": "50Mi"},
		"imageGCHighThresholdPercent": 100, "runtimeRequestTimeout": "5m", "nodeLeaseDurationSeconds": 240,
	})
	if err != nil {
		b.Fatal(err)
	}
	m.Put(config, 0o644, text)
	m.Put("/opt/cni/bin/none", 0o755, []byte(plugin))
	m.Put("/etc/cni/net.d/10-none.conflist", 0o644, []byte(`{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "none"}]}`))
	m.Put("/usr/local/bin/timely", 0o755, built(b))
	m.Spawn("kubelet", "/usr/local/bin/kubelet", "--config="+config, "--kubeconfig="+kubeconfig, "--hostname-override="+name,
		"--node-ip=10.0.2.15", "--root-dir=/var/lib/kubelet", "--cert-dir=/var/lib/kubelet/pki", "--v=2")
	begun := time.Now()
	for ready(b, p) != nil {
		if time.Since(begun) > 8*time.Minute {
			b.Fatal(ready(b, p))
		}
		time.Sleep(time.Second) // the interval of polling
	}
	answer, err := m.Exec(b.Context(), "/usr/local/bin/timely", admin, name, vm.Image("probe"), podsSocket, fmt.Sprint(*many))
	if err != nil || answer.Code != 0 {
		b.Fatalf("the probe: %v, %d: %s", err, answer.Code, answer.Stderr)
	}
	var times []map[string]float64
	if err := json.Unmarshal([]byte(answer.Stdout), &times); err != nil {
		b.Fatalf("%v: %s", err, answer.Stdout)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	b.Logf("%d pods; load of this machine %s; milliseconds from the API server's answer to the creation", len(times), strings.TrimSpace(string(load)))
	for _, source := range []string{"API server", "Pods API", "/pods", "NRI"} {
		var all []float64
		for _, of := range times {
			all = append(all, of[source])
		}
		slices.Sort(all)
		b.Logf("%-10s least %.0f, p50 %.0f, p90 %.0f, most %.0f", source, all[0], all[len(all)/2], all[len(all)*9/10], all[len(all)-1])
	}
	b.ReportMetric(0, "ns/op")
}

// reach returns a kubeconfig with which a guest reaches the API server.
func reach(b *testing.B, p *controlplane.Plane, user string) []byte {
	b.Helper()
	ca, err := os.ReadFile(p.CA)
	if err != nil {
		b.Fatal(err)
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: fmt.Sprintf("https://%s:%d", controlplane.HostAddress, p.Port), CertificateAuthorityData: ca}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: user + "-token"}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	text, err := clientcmd.Write(*c)
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// ready returns why the node is not ready.
func ready(b *testing.B, p *controlplane.Plane) error {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
	defer cancel()
	o, err := objects.ClientFor(p.Dynamic(controlplane.Admin), "Node", "").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, each := range all {
		if is, _ := each.(map[string]any); is["type"] == "Ready" && is["status"] == "True" {
			return nil
		}
	}
	return errors.New("the node is not ready: see the log of its kubelet")
}

// built returns the probe.
func built(b *testing.B) []byte {
	b.Helper()
	file := filepath.Join(b.TempDir(), "probe")
	cmd := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-tags", "nri_no_wasm,grpcnotrace", "-ldflags=-s -w", "-o", file, "./probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build the probe: %v\n%s", err, out)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	return program
}
