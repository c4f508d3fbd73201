package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// Options say which API server is asked, and as which node.
type Options struct {
	// Kubeconfig is the file that says where the API server is and who asks; "" for
	// the service account of the pod that the agent runs in.
	Kubeconfig string
	// Node is the name of this node's Node object; "" for the environment variable
	// NODE_NAME, else the host name in lower case, as the kubelet has it.
	Node string
	// Namespace is where the ConfigMaps are; "" for POD_NAMESPACE, else that of the
	// service account, else "trimtab".
	Namespace string
	// Version is the agent's, for the user agent header.
	Version string
	// Dial connects to the server; nil for the system's call. Clients share a connection
	// unless each has its own.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Spread is the longest wait before anything is listed: the agents of a thousand
	// nodes that start at once would overload the server, and wait longer. A connection
	// that ended is made again after as long, 5 s at most.
	Spread time.Duration
	Log    *slog.Logger
}

const (
	// asks is how many requests the agent makes a second once burst are used up:
	// a node has few objects of its own, and a thousand nodes share a server.
	asks  = 5
	burst = 20
	// accountNamespace is the file of a pod that has its namespace.
	accountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// Client is a connection to the API server, for one node. Its parts share the
// limits of requests, and note here what they reached.
type Client struct {
	// Dynamic reads and writes objects of any kind.
	Dynamic dynamic.Interface
	// Node is the name of this node's Node object.
	Node string
	// Namespace is where the ConfigMaps are.
	Namespace string
	// Server is the API server's URL.
	Server string
	// HTTP sends requests with the agent's credentials, without a limit of time or rate.
	HTTP *http.Client
	// Log is the agent's.
	Log *slog.Logger

	begins time.Time
	token  *token // explains refusals

	mu      sync.Mutex // guards all below
	reached time.Time
	failed  error
	refused bool // by the last answer: the token
}

// Connect makes a client. It reads files and sends no request: whether the server is
// there shows with the first request.
func Connect(o Options) (*Client, error) {
	c, err := restConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	c.UserAgent = "trimtab/" + o.Version
	c.QPS, c.Burst, c.Dial = asks, burst, o.Dial
	if o.Spread > 0 {
		c.Dial = spreadRedials(o.Dial, min(o.Spread, longestRedial))
	}
	t := tokenOf(c)
	server, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, fmt.Errorf("read the API server's address: %w", err)
	}
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server %s: %w", server, err)
	}
	d, err := dynamic.NewForConfigAndClient(c, h)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server %s: %w", server, err)
	}
	node, err := NodeName(o.Node)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	begins := time.Now()
	if o.Spread > 0 {
		begins = begins.Add(rand.N(o.Spread)) //nolint:gosec // only spreads load
	}
	return &Client{
		begins: begins, Dynamic: d, Node: node, Namespace: namespace(o.Namespace), Server: server.String(), HTTP: h, Log: o.Log, token: t,
		failed: errors.New("not asked yet"),
	}, nil
}

// Begin waits until anything may be listed (Options.Spread), or ctx ends.
func (c *Client) Begin(ctx context.Context) { sleep.For(ctx, time.Until(c.begins)) }

// restConfig reads how the server is reached.
func restConfig(file string) (*rest.Config, error) {
	if file != "" {
		c, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			return nil, fmt.Errorf("read the kubeconfig (cluster.kubeconfig): %w", err)
		}
		return c, nil
	}
	c, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("use the pod's service account: %w; outside of a pod name a file in cluster.kubeconfig", err)
	}
	return c, nil
}

// NodeName is the name of this node: the one that is given, else NODE_NAME, else the host name in lower case.
func NodeName(name string) (string, error) {
	if name = cmp.Or(name, os.Getenv("NODE_NAME")); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the node's name: %w; set cluster.nodeName", err)
	}
	return strings.ToLower(host), nil
}

func namespace(name string) string {
	if name = cmp.Or(name, os.Getenv("POD_NAMESPACE")); name != "" {
		return name
	}
	data, _ := os.ReadFile(accountNamespace) // there is none outside of a pod
	return cmp.Or(strings.TrimSpace(string(data)), "trimtab")
}

// Note takes down how a request ended. A server that refuses one was reached, too: the
// part that asked reports the refusal. Without a token that it accepts nothing works: a
// refusal of that is logged once, with what can be said of the reason.
func (c *Client) Note(err error) {
	err = c.token.explained(err)
	refused := apierrors.IsUnauthorized(err)
	if answered(err) {
		err = nil
	}
	c.mu.Lock()
	first := refused && !c.refused
	if c.failed = err; err == nil {
		c.reached = time.Now()
	}
	c.refused = refused
	c.mu.Unlock()
	if first {
		c.Log.Warn("nothing is done through the API server until it accepts the token", logkey.Err, err)
	}
}

// answered reports whether an error is the refusal of one request, such as 403, 409, 410
// or 429, and not of the token (401); with 5xx nothing behind a proxy may be there.
func answered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code != http.StatusUnauthorized && code >= http.StatusBadRequest && code < http.StatusInternalServerError
}

// State returns when the server was last reached, and how the last request failed;
// nil if it did not.
func (c *Client) State() (reached time.Time, failed error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reached, c.failed
}
