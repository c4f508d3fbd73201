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

// Options configure the connection to the API server.
type Options struct {
	// Kubeconfig is the file with the API server's address and credentials; "" means the
	// service account of the agent's pod.
	Kubeconfig string
	// Node is the name of this node's Node object; "" means the environment variable
	// NODE_NAME, or else the host name in lower case, as in the kubelet.
	Node string
	// Namespace is the namespace of the ConfigMaps with the configuration; "" means the environment variable
	// POD_NAMESPACE, or else the namespace of the service account, or else "trimtab".
	Namespace string
	// Version is the agent's version, for the user agent header.
	Version string
	// Dial connects to the server; nil means a net.Dialer. Clients with the same Dial share a connection.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Spread is the longest random wait before the first list request. Without the wait, a thousand agents that start
	// at the same time would overload the server. Before the client replaces a connection that ended, it also waits
	// a random time, at most Spread and at most 5 s.
	Spread time.Duration
	Log    *slog.Logger
}

const (
	// requestsPerSecond limits the agent's requests. It is low, because a node has few objects, and a thousand nodes
	// share a server.
	requestsPerSecond = 5
	// burst is the number of requests that may exceed requestsPerSecond at once.
	burst = 20
	// accountNamespace is the file with the namespace of the agent's pod.
	accountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// Client is the agent's client of the API server. All services share its rate limit. They call RecordResult to
// record whether the server answered.
type Client struct {
	// Dynamic reads and writes objects of any kind.
	Dynamic dynamic.Interface
	// Node is the name of this node's Node object.
	Node string
	// Namespace is the namespace of the ConfigMaps with the configuration.
	Namespace string
	// Server is the API server's URL.
	Server string
	// HTTP sends requests with the agent's credentials, without a timeout or rate limit.
	HTTP *http.Client
	// Log is the agent's log.
	Log *slog.Logger

	firstListAt time.Time // AwaitFirstList waits until this time
	token       *token    // explains why the server refused the agent's token

	mu           sync.Mutex // guards the fields below
	reached      time.Time  // the time of the server's last answer
	lastErr      error      // the error of the last request; nil if the server answered
	tokenRefused bool       // the server refused the token in its last answer
}

// Connect makes a client. It reads files and sends no request: the first request shows
// whether the server answers.
func Connect(o Options) (*Client, error) {
	c, err := restConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	c.UserAgent = "trimtab/" + o.Version
	c.QPS, c.Burst, c.Dial = requestsPerSecond, burst, o.Dial
	if o.Spread > 0 {
		c.Dial = spreadRedials(o.Dial, min(o.Spread, maxRedialWait))
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
	firstListAt := time.Now()
	if o.Spread > 0 {
		firstListAt = firstListAt.Add(rand.N(o.Spread)) //nolint:gosec // only spreads load
	}
	return &Client{
		firstListAt: firstListAt, Dynamic: d, Node: node, Namespace: namespace(o.Namespace), Server: server.String(), HTTP: h, Log: o.Log, token: t,
		lastErr: errors.New("the agent has sent no request yet"),
	}, nil
}

// AwaitFirstList waits until the agent may request its first list (Options.Spread), or until ctx ends.
func (c *Client) AwaitFirstList(ctx context.Context) { sleep.For(ctx, time.Until(c.firstListAt)) }

// restConfig reads the address and the credentials for the API server: from a kubeconfig file, or if file is "" from
// the pod's service account.
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
		return nil, fmt.Errorf("use the pod's service account: %w; outside of a pod set cluster.kubeconfig", err)
	}
	return c, nil
}

// NodeName returns the name of this node's Node object: the configured name, or else the environment variable
// NODE_NAME, or else the host name in lower case.
func NodeName(configured string) (string, error) {
	if name := cmp.Or(configured, os.Getenv("NODE_NAME")); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the node's name: %w; set cluster.nodeName", err)
	}
	return strings.ToLower(host), nil
}

// namespace returns the namespace of the ConfigMaps: the configured namespace, or else the environment variable
// POD_NAMESPACE, or else the namespace of the service account, or else "trimtab".
func namespace(configured string) string {
	if name := cmp.Or(configured, os.Getenv("POD_NAMESPACE")); name != "" {
		return name
	}
	data, _ := os.ReadFile(accountNamespace) // outside of a pod the file does not exist
	return cmp.Or(strings.TrimSpace(string(data)), "trimtab")
}

// RecordResult stores the result of a request. If the server refuses a single request, the server still counts as
// reached, because the service that sent the request reports the refusal. If the server refuses the agent's token, every
// request fails. So RecordResult logs the first refusal of the token, with the possible reason.
func (c *Client) RecordResult(err error) {
	err = c.token.explain(err)
	refused := apierrors.IsUnauthorized(err)
	if isServerRefusal(err) {
		err = nil
	}
	c.mu.Lock()
	first := refused && !c.tokenRefused
	if c.lastErr = err; err == nil {
		c.reached = time.Now()
	}
	c.tokenRefused = refused
	c.mu.Unlock()
	if first {
		c.Log.Warn("the API server refuses the agent's token; the agent cannot send reports or read ConfigMaps until the server accepts a token", logkey.Err, err)
	}
}

// isServerRefusal reports whether an error is the server's refusal of one request, such as 403, 409, 410 or 429. It
// returns false for a refused token (401), and for 5xx, because a proxy can also answer 5xx.
func isServerRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code != http.StatusUnauthorized && code >= http.StatusBadRequest && code < http.StatusInternalServerError
}

// State returns when the server was last reached, and the error of the last request. The error is nil if the request
// succeeded, or if the server refused only that request (isServerRefusal).
func (c *Client) State() (reached time.Time, lastErr error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reached, c.lastErr
}
