package fleet

import (
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// NotFoundError says which object does not exist, and where else to search.
type NotFoundError struct{ Reason string }

// Error returns the message.
func (n *NotFoundError) Error() string { return n.Reason }

// UnreachableError says that the API server or an agent does not answer, and what to do.
type UnreachableError struct {
	Reason string
	Err    error // the cause; nil if Reason is complete
}

// Error returns the message with the cause.
func (u *UnreachableError) Error() string {
	if u.Err == nil {
		return u.Reason
	}
	return u.Reason + ": " + u.Err.Error()
}

// Unwrap returns the cause.
func (u *UnreachableError) Unwrap() error { return u.Err }

// ForbiddenError is the error of a request that RBAC refuses, with the rule that the user needs.
type ForbiddenError struct {
	Verb, Resource, Namespace string // Namespace is "" for all namespaces
	Err                       error  // the API server's answer
}

// Error returns a message with the missing rule, in the form of a rule in a Role.
func (f *ForbiddenError) Error() string {
	where := "in all namespaces"
	if f.Namespace != "" {
		where = "in namespace " + f.Namespace
	}
	if f.Resource == "nodes" {
		where = "in the cluster"
	}
	text := fmt.Sprintf("not allowed to %s %s %s: your role needs {apiGroups: [\"\"], resources: [%s], verbs: [%s]}",
		f.Verb, f.Resource, where, f.Resource, f.Verb)
	if f.Resource == "pods" && f.Verb == "list" && f.Namespace == "" {
		text += ", or name the agents' namespace with --agent-namespace"
	}
	return text + "; docs/kubectl.md shows the complete role"
}

// Unwrap returns the API server's answer.
func (f *ForbiddenError) Unwrap() error { return f.Err }

// requestError returns an error for a failed request to the API server, with advice.
func (c *Cluster) requestError(err error, verb, resource, namespace string) error {
	var (
		network net.Error
		dial    *url.Error
	)
	switch {
	case apierrors.IsForbidden(err):
		return &ForbiddenError{Verb: verb, Resource: resource, Namespace: namespace, Err: err}
	case apierrors.IsUnauthorized(err):
		return &UnreachableError{Reason: fmt.Sprintf("the API server %s does not accept your credentials: log in again, or choose another --context", c.config.Host), Err: err}
	case errors.As(err, &dial), errors.As(err, &network):
		return &UnreachableError{Reason: fmt.Sprintf("the API server %s does not answer: check --context and the network", c.config.Host), Err: err}
	}
	return fmt.Errorf("%s %s: %w", verb, resource, err)
}
