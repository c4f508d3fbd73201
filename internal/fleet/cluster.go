package fleet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	// Selector selects the agents' pods. It is the label that the Helm chart sets on these pods.
	Selector = "app.kubernetes.io/name=trimtab"
	// Container is the name of the agent's container in the agent's pod.
	Container = "trimtab"
	// IdleCommand is the first argument of a container that runs no agent (the chart's value attach: none).
	IdleCommand = "idle"
	// pageSize is how many objects one request lists.
	pageSize = 500
)

// The resources that kubectl trimtab uses.
var (
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// Cluster is a connection to an API server with the credentials of one user.
type Cluster struct {
	config  *rest.Config
	objects dynamic.Interface
	// agentNamespace is the namespace with the agents' pods; "" for all namespaces.
	agentNamespace string
}

// Connect makes a connection, and sends no request yet. agentNamespace is the namespace with the agents' pods; "" means
// all namespaces.
func Connect(c *rest.Config, agentNamespace string) (*Cluster, error) {
	c = rest.CopyConfig(c)
	// A command sends one or two requests per node. client-go's default limit of 5 requests per second would be too
	// slow for many nodes.
	c.QPS, c.Burst = 100, 200
	d, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server %s: %w", c.Host, err)
	}
	return &Cluster{config: c, objects: d, agentNamespace: agentNamespace}, nil
}

// PodNode returns the node that a pod is bound to.
func (c *Cluster) PodNode(ctx context.Context, namespace, name string) (string, error) {
	u, err := c.objects.Resource(pods).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", &NotFoundError{fmt.Sprintf("there is no pod %s/%s: check the namespace (-n)", namespace, name)}
	case err != nil:
		return "", c.requestError(err, "get", "pods", namespace)
	}
	node, _, _ := unstructured.NestedString(u.Object, "spec", "nodeName")
	if node == "" {
		return "", &NotFoundError{fmt.Sprintf("pod %s/%s has no node yet: kubectl describe pod says why it is not scheduled", namespace, name)}
	}
	return node, nil
}

// list reads all objects of a resource, in pages.
func (c *Cluster) list(ctx context.Context, of schema.GroupVersionResource, namespace, labels string) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	o := metav1.ListOptions{LabelSelector: labels, Limit: pageSize}
	for {
		l, err := c.objects.Resource(of).Namespace(namespace).List(ctx, o)
		if err != nil {
			return nil, c.requestError(err, "list", of.Resource, namespace)
		}
		all = append(all, l.Items...)
		if o.Continue = l.GetContinue(); o.Continue == "" {
			return all, nil
		}
	}
}

// pod converts an object to the type Pod.
func pod(u unstructured.Unstructured) (corev1.Pod, error) {
	var p corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p); err != nil {
		return p, fmt.Errorf("read pod %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	return p, nil
}

// isReady reads an agent's pod from the API server, and reports whether the pod is ready and its program runs.
func (c *Cluster) isReady(ctx context.Context, a *Agent) (bool, error) {
	u, err := c.objects.Resource(pods).Namespace(a.Namespace).Get(ctx, a.Pod, metav1.GetOptions{})
	if err != nil {
		return false, c.requestError(err, "get", "pods", a.Namespace)
	}
	p, err := pod(*u)
	if err != nil {
		return false, err
	}
	now, _ := agentOf(p)
	return now != nil && now.WhyDown == "" && now.Ready, nil
}
