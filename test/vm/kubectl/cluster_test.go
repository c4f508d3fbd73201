package kubectl

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

const root = "../../.."

// cluster is an API server with nodes, of which some have an agent, and the two programs.
type cluster struct {
	*testing.T
	plane  *controlplane.Plane
	agent  string // the agent's program
	plugin string
	conf   string // the administrator's kubeconfig
	dir    string
}

// start makes a cluster without nodes.
func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, dir: t.TempDir()}
	built.Do(func() { c.build("./cmd/trimtab", "./cmd/kubectl-trimtab") })
	c.agent, c.plugin = filepath.Join(programs, "trimtab"), filepath.Join(programs, "kubectl-trimtab")
	c.plane = controlplane.Start(t, "--kubelet-preferred-address-types=InternalIP")
	c.conf = c.plane.Kubeconfig("admin", controlplane.Admin+"-token")
	c.create("v1", "ServiceAccount", "kube-system", "trimtab", nil)
	return c
}

// programs is the directory of the tests' programs; built builds them once.
var (
	programs string
	built    sync.Once
)

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "trimtab-kubectl"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// build builds programs as they are released.
func (c *cluster) build(packages ...string) {
	args := []string{"build", "-buildvcs=false", "-trimpath", "-tags", "nri_no_wasm,grpcnotrace", "-ldflags", "-s -w", "-o", programs + "/"}
	cmd := exec.CommandContext(c.Context(), "go", append(args, packages...)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		c.Fatalf("%s: %v\n%s", cmd, err, text)
	}
}

// resource returns the resource of a kind, for the few kinds of these tests.
func resource(apiVersion, kind string) schema.GroupVersionResource {
	gv, _ := schema.ParseGroupVersion(apiVersion)
	return gv.WithResource(strings.ToLower(kind) + "s")
}

func (c *cluster) create(apiVersion, kind, namespace, name string, more map[string]any) *unstructured.Unstructured {
	o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
	for k, v := range more {
		if k == "labels" {
			o["metadata"].(map[string]any)["labels"] = v
			continue
		}
		o[k] = v
	}
	return c.apply(namespace, &unstructured.Unstructured{Object: o})
}

// apply creates an object and writes its status, if it has one.
func (c *cluster) apply(namespace string, u *unstructured.Unstructured) *unstructured.Unstructured {
	status, has := u.Object["status"]
	to := c.plane.Dynamic(controlplane.Admin).Resource(resource(u.GetAPIVersion(), u.GetKind())).Namespace(namespace)
	made, err := to.Create(c.Context(), u, v1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	if has {
		made.Object["status"] = status
		if made, err = to.UpdateStatus(c.Context(), made, v1.UpdateOptions{}); err != nil {
			c.Fatal(err)
		}
	}
	return made
}

// file creates the objects of a YAML file.
func (c *cluster) file(name string) {
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		c.Fatal(err)
	}
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		u := &unstructured.Unstructured{}
		if err := d.Decode(u); err != nil {
			return
		}
		c.apply(u.GetNamespace(), u)
	}
}

// node makes a Node whose kubelet listens at a port of 127.0.0.1; 0 for none yet.
func (c *cluster) node(name string, port int, labels map[string]any) {
	c.create("v1", "Node", "", name, map[string]any{"labels": labels, "status": statusOf(port)})
}

// kubeletOf sets the port of a node's kubelet.
func (c *cluster) kubeletOf(name string, port int) {
	to := c.plane.Dynamic(controlplane.Admin).Resource(resource("v1", "Node"))
	u, err := to.Get(c.Context(), name, v1.GetOptions{})
	if err == nil {
		u.Object["status"] = statusOf(port)
		_, err = to.UpdateStatus(c.Context(), u, v1.UpdateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

func statusOf(port int) map[string]any {
	return map[string]any{
		"addresses":       []any{map[string]any{"type": "InternalIP", "address": "127.0.0.1"}},
		"daemonEndpoints": map[string]any{"kubeletEndpoint": map[string]any{"Port": int64(port)}},
	}
}

// pod makes a running pod; it has an agent's labels and container if labels say so.
func (c *cluster) pod(namespace, name, node string, labels map[string]any, args ...any) {
	c.create("v1", "Pod", namespace, name, map[string]any{
		"labels": labels,
		"spec": map[string]any{
			"nodeName": node, "serviceAccountName": "trimtab", "automountServiceAccountToken": false,
			"containers": []any{map[string]any{"name": "trimtab", "image": "trimtab", "args": args}},
		},
		"status": map[string]any{
			"phase": "Running", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
			"containerStatuses": []any{map[string]any{
				"name": "trimtab", "ready": true, "image": "trimtab", "imageID": "trimtab", "restartCount": int64(0),
				"state": map[string]any{"running": map[string]any{"startedAt": time.Now().UTC().Format(time.RFC3339)}},
			}},
		},
	})
}

var agentLabels = map[string]any{"app.kubernetes.io/name": "trimtab"}

// agentOn makes a node with an agent that has played a scenario.
func (c *cluster) agentOn(name, play string, labels map[string]any) {
	c.node(name, 0, labels)
	file := filepath.Join(c.dir, name+".yaml")
	c.play(name, play, file)
	k := &kubelet{program: c.agent, env: []string{"TRIMTAB_CONFIG=" + file, "PATH=" + os.Getenv("PATH")}}
	c.kubeletOf(name, k.serve(c.T))
	c.pod("kube-system", "trimtab-"+name, name, agentLabels, "agent", "--config", file)
}

// play plays a scenario and leaves agent and node in the final state. The agent reads its part of the
// configuration, with the path of its status socket, from a file, and the rest from the API server.
func (c *cluster) play(node, name, file string) {
	s, err := scenario.Load(filepath.Join(root, "test/scenarios", name+".yaml"))
	if err != nil {
		c.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	sim.SetNRILog(log)
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- sim.Run(ctx, s, sim.RunOptions{
			Log: log, Patience: time.Minute,
			Agent: func(o sim.AgentOptions) (sim.Agent, error) {
				o.Config.Cluster.Enabled, o.Config.Cluster.Kubeconfig, o.Config.Cluster.NodeName = true, c.conf, node
				o.Config.Cluster.Namespace = "kube-system"
				if err := os.WriteFile(file, config.Print(o.Config), 0o600); err != nil {
					return nil, err
				}
				options := simulated.Options(o)
				options.ConfigFile, options.Version = file, "v0.1.0"
				return agent.New(options)
			},
			AtEnd: func(api.Node) error { close(ready); <-ctx.Done(); return nil },
		})
	}()
	select {
	case <-ready:
	case err := <-ended:
		c.Fatalf("scenario %s: %v", name, err)
	}
	c.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			c.Logf("scenario %s: %v", name, err)
		}
	})
}

// answer is the output and exit code of the plugin.
type answer struct {
	out, err string
	code     int
}

// run runs the plugin as the administrator, unless a flag says otherwise.
func (c *cluster) run(args ...string) answer { return c.feed("", args...) }

// feed is run with text on standard input.
func (c *cluster) feed(in string, args ...string) answer {
	c.Helper()
	var out, words bytes.Buffer
	cmd := exec.CommandContext(c.Context(), c.plugin, append(slices.Clone(args), "--kubeconfig", c.conf, "--timeout", "60s")...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &words
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.Fatal(err)
	}
	c.Logf("$ kubectl trimtab %s\n%s%s[exit code %d]", strings.Join(args, " "), out.String(), words.String(), cmd.ProcessState.ExitCode())
	return answer{out.String(), words.String(), cmd.ProcessState.ExitCode()}
}

// want fails the test unless the answer has this exit code and every text.
func (c *cluster) want(a answer, code int, texts ...string) {
	c.Helper()
	if a.code != code {
		c.Errorf("exit code %d, want %d", a.code, code)
	}
	for _, text := range texts {
		if !strings.Contains(a.out+a.err, text) {
			c.Errorf("the answer lacks %q", text)
		}
	}
}
