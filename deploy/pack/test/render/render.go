// Package render renders the Helm chart for tests with the real helm. It decodes the rendered objects strictly into
// Kubernetes' types.
package render

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/deploy/pack/chart"
	"github.com/trimtab/trimtab/deploy/pack/test/tree"
)

// Tool returns the directory of a program in the tool cache. If the cache does not have the program, Tool builds the
// program, which takes minutes.
func Tool(t testing.TB, name string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(tree.Root(t), "test/tools/build.sh"), name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

var (
	helmOnce sync.Once // sets helmDir
	helmDir  string    // the directory of the program helm
)

// Helm runs helm without a cluster, and returns helm's standard output. An error has all output of helm as its text.
func Helm(t testing.TB, args ...string) (string, error) {
	t.Helper()
	helmOnce.Do(func() { helmDir = Tool(t, "helm") })
	cmd := exec.CommandContext(t.Context(), filepath.Join(helmDir, "helm"), args...)
	home := t.TempDir()
	cmd.Env = []string{"HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "none")}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = errors.New(strings.TrimSpace(string(out) + stderr.String()))
	}
	return string(out), err
}

// Objects has the Kubernetes objects of the rendered chart.
type Objects struct {
	DaemonSet *appsv1.DaemonSet
	Account   *corev1.ServiceAccount
	Config    string // the agent's configuration file
	// Roles and LocalRoles grant the agents their rights at the API server.
	Roles      []*rbacv1.ClusterRole
	LocalRoles []*rbacv1.Role
	Policies   []*admissionv1.ValidatingAdmissionPolicy
	Service    *corev1.Service // of the agents' metrics
	// Monitors has the objects of the Prometheus operator by kind, such as PodMonitor.
	Monitors map[string]map[string]any
}

// Chart lints and renders the chart. The parameter values is the text of a values file. The test fails if a rendered
// object has unknown or repeated fields.
func Chart(t testing.TB, values string) Objects {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(tree.Root(t), chart.Dir)
	if out, err := Helm(t, "lint", "--strict", from, "-f", file); err != nil {
		t.Fatalf("helm lint: %v\n%s", err, out)
	}
	text, err := Helm(t, "template", "trimtab", from, "--namespace", "kube-system", "-f", file)
	if err != nil {
		t.Fatalf("helm template: %v", err)
	}
	var o Objects
	for document := range strings.SplitSeq(strings.TrimPrefix(text, "---\n"), "\n---\n") {
		o.add(t, document)
	}
	return o
}

// add decodes one YAML document of the rendered chart, and stores its object in o.
func (o *Objects) add(t testing.TB, document string) {
	t.Helper()
	data, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		t.Fatalf("decode the rendered document: %v in\n%s", err, document)
	}
	var head struct {
		Kind string `json:"kind"`
	}
	if err := strictjson.UnmarshalCaseSensitivePreserveInts(data, &head); err != nil {
		t.Fatal(err)
	}
	switch head.Kind {
	case "DaemonSet":
		o.DaemonSet = decode[appsv1.DaemonSet](t, data)
	case "ServiceAccount":
		o.Account = decode[corev1.ServiceAccount](t, data)
	case "ConfigMap":
		o.Config = decode[corev1.ConfigMap](t, data).Data["config.yaml"]
	case "Service":
		o.Service = decode[corev1.Service](t, data)
	case "PodMonitor", "ServiceMonitor", "PrometheusRule":
		if o.Monitors == nil {
			o.Monitors = map[string]map[string]any{}
		}
		o.Monitors[head.Kind] = *decode[map[string]any](t, data)
	case "ClusterRole":
		o.Roles = append(o.Roles, decode[rbacv1.ClusterRole](t, data))
	case "Role":
		o.LocalRoles = append(o.LocalRoles, decode[rbacv1.Role](t, data))
	case "ClusterRoleBinding":
		decode[rbacv1.ClusterRoleBinding](t, data)
	case "RoleBinding":
		decode[rbacv1.RoleBinding](t, data)
	case "ValidatingAdmissionPolicy":
		o.Policies = append(o.Policies, decode[admissionv1.ValidatingAdmissionPolicy](t, data))
	case "ValidatingAdmissionPolicyBinding":
		decode[admissionv1.ValidatingAdmissionPolicyBinding](t, data)
	default:
		t.Errorf("the chart has an object of the kind %q, which this test does not know", head.Kind)
	}
}

// decode decodes JSON like an API server with fieldValidation=Strict: unknown or repeated fields fail the test.
func decode[T any](t testing.TB, data []byte) *T {
	t.Helper()
	into := new(T)
	problems, err := strictjson.UnmarshalStrict(data, into)
	if err != nil || len(problems) > 0 {
		t.Fatalf("decode a %T: %v %v in\n%s", into, err, problems, data)
	}
	return into
}
