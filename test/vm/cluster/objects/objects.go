// Package objects makes Kubernetes objects for tests with a real API server: the objects of the Helm chart, and tokens
// of the agents' service account.
package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// Tests install the Helm chart with the release name Release, in the namespace Namespace.
const (
	Release   = "trimtab"
	Namespace = "kube-system"
)

// resources has the API resources of the objects that tests make, by kind.
var resources = map[string]schema.GroupVersionResource{
	"Node":                             {Version: "v1", Resource: "nodes"},
	"Pod":                              {Version: "v1", Resource: "pods"},
	"Namespace":                        {Version: "v1", Resource: "namespaces"},
	"Event":                            {Version: "v1", Resource: "events"},
	"Secret":                           {Version: "v1", Resource: "secrets"},
	"ConfigMap":                        {Version: "v1", Resource: "configmaps"},
	"ServiceAccount":                   {Version: "v1", Resource: "serviceaccounts"},
	"DaemonSet":                        {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"Role":                             {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ClusterRole":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	"MutatingAdmissionPolicy":          {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies"},
	"MutatingAdmissionPolicyBinding":   {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicybindings"},
	"CustomResourceDefinition":         {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	"NodeResourceTopology":             {Group: "topology.node.k8s.io", Version: "v1alpha2", Resource: "noderesourcetopologies"},
	"NodeMetric":                       {Group: "slo.koordinator.sh", Version: "v1alpha1", Resource: "nodemetrics"},
	"Device":                           {Group: "scheduling.koordinator.sh", Version: "v1alpha1", Resource: "devices"},
	"CustomNodeResource":               {Group: "node.katalyst.kubewharf.io", Version: "v1alpha1", Resource: "customnoderesources"},
}

// ClientFor returns the client for the objects of a kind. namespace is "" for objects without a namespace.
func ClientFor(d dynamic.Interface, kind, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return d.Resource(resources[kind])
	}
	return d.Resource(resources[kind]).Namespace(namespace)
}

// Parse parses YAML documents.
func Parse(t testing.TB, text string) (out []*unstructured.Unstructured) {
	t.Helper()
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		o := &unstructured.Unstructured{}
		switch err := d.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return out
		case err != nil:
			t.Fatalf("%v in\n%s", err, text)
		case len(o.Object) > 0:
			out = append(out, o)
		}
	}
}

// Create creates the objects in YAML documents. It tries again while the API server does not have the namespace or the
// type of an object yet.
func Create(t testing.TB, p *controlplane.Plane, text string) {
	t.Helper()
	admin := p.Dynamic(controlplane.Admin)
	for _, o := range Parse(t, text) {
		if _, known := resources[o.GetKind()]; !known {
			t.Fatalf("the map resources has no entry for the kind %s", o.GetKind())
		}
		p.Wait("create "+o.GetKind()+" "+o.GetName(), func(ctx context.Context) error {
			_, err := ClientFor(admin, o.GetKind(), o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{FieldValidation: "Strict"})
			if kerrors.IsInvalid(err) || kerrors.IsBadRequest(err) {
				t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
			}
			return err
		})
	}
}

// Chart returns the manifests of the Helm chart, rendered with values such as "config.cluster.podAnnotation=true".
func Chart(t testing.TB, values ...string) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "../../../..")
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "test/tools/build.sh"), "helm")
	cmd.Stderr = os.Stderr
	dir, err := cmd.Output()
	if err != nil {
		t.Fatalf("build helm: %v", err)
	}
	args := []string{"template", Release, filepath.Join(root, "deploy/charts/trimtab"), "--namespace", Namespace}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	home := t.TempDir()
	cmd = exec.CommandContext(t.Context(), filepath.Join(strings.TrimSpace(string(dir)), "helm"), args...)
	cmd.Env = []string{"HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "none")}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("helm template: %v", err)
	}
	return string(out)
}

// Token requests a token of the agents' service account, as a kubelet does for a pod. The token is bound to the object
// with the given kind and name. If kind is "", it is bound to no object.
func Token(t testing.TB, p *controlplane.Plane, kind, name string) string {
	t.Helper()
	admin := p.Dynamic(controlplane.Admin)
	spec := map[string]any{"expirationSeconds": int64(3600)}
	if kind != "" {
		in := ""
		if kind == "Pod" {
			in = Namespace
		}
		bound, err := ClientFor(admin, kind, in).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spec["boundObjectRef"] = map[string]any{"kind": kind, "apiVersion": "v1", "name": name, "uid": string(bound.GetUID())}
	}
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": Release}, "spec": spec,
	}}
	made, err := ClientFor(admin, "ServiceAccount", Namespace).Create(t.Context(), request, metav1.CreateOptions{}, "token")
	if err != nil {
		t.Fatalf("request a token bound to the %s %s: %v", kind, name, err)
	}
	out, _, _ := unstructured.NestedString(made.Object, "status", "token")
	return out
}

// ClientWithToken returns a client that authenticates with a token.
func ClientWithToken(t testing.TB, p *controlplane.Plane, token string) dynamic.Interface {
	t.Helper()
	c := p.Config(controlplane.Admin)
	c.BearerToken = token
	d, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
