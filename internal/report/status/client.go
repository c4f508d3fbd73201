package status

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"

	"github.com/trimtab/trimtab/internal/report/api"
)

// UnreachableError is the error of a client that cannot reach the agent.
type UnreachableError struct {
	Path string // the path of the status socket
	Hint string // what failed, and what the user can do
	Err  error  // the cause
}

// Error returns the hint.
func (u *UnreachableError) Error() string { return u.Hint }

// Unwrap returns the cause.
func (u *UnreachableError) Unwrap() error { return u.Err }

// RefusedError is the error of a request that the agent refused.
type RefusedError struct {
	Status int    // HTTP status code
	Reason string // why the agent refused the request
}

// Error returns the agent's reason.
func (r *RefusedError) Error() string { return r.Reason }

// Client sends requests to a running agent.
type Client struct {
	path string // the path of the status socket
	http *http.Client
}

// Dial returns a client of the agent that serves the socket at path. The error is *UnreachableError if no agent serves
// the socket.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, unreachable(path, err)
	}
	_ = c.Close()
	return &Client{path: path, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) },
	}}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// unreachable returns the *UnreachableError for an error of a connection to the socket at path.
func unreachable(path string, err error) error {
	hint := fmt.Sprintf("cannot reach the agent at %s: %v", path, err)
	switch {
	case errors.Is(err, os.ErrNotExist):
		hint = fmt.Sprintf("no socket at %s: check that the agent runs (the socket is paths.statusSocket of its configuration; --socket sets another path)", path)
	case errors.Is(err, os.ErrPermission):
		hint = fmt.Sprintf("not allowed to use %s: the status socket is for root only, try sudo", path)
	case errors.Is(err, syscall.ECONNREFUSED) && !isSocket(path):
		hint = fmt.Sprintf("%s is not a socket: --socket needs the status socket of an agent (paths.statusSocket of its configuration)", path)
	case errors.Is(err, syscall.ECONNREFUSED):
		hint = fmt.Sprintf("no agent answers at %s: the agent that made this socket has ended; start the agent again", path)
	}
	return &UnreachableError{Path: path, Hint: hint, Err: err}
}

// isSocket reports whether the file at a path is a socket.
func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == os.ModeSocket
}

// Status requests the state of the whole node.
func (c *Client) Status(ctx context.Context) (api.Node, error) {
	return fetch[api.Node](ctx, c, http.MethodGet, "status", nil, nil)
}

// Explain requests the state of all containers of a pod, or of one container if container is not "". The error is
// *RefusedError if the agent does not know the pod or container.
func (c *Client) Explain(ctx context.Context, namespace, pod, container string) ([]api.Container, error) {
	q := url.Values{"namespace": {namespace}, "pod": {pod}, "container": {container}}
	return fetch[[]api.Container](ctx, c, http.MethodGet, "explain", q, nil)
}

// Events calls handle for each event after the sequence number since, the oldest event first. With follow, it continues
// with new events until ctx or the agent ends. It returns nil if ctx has ended, and an error if the agent has ended.
func (c *Client) Events(ctx context.Context, since uint64, follow bool, handle func(api.Event) error) error {
	q := url.Values{"since": {strconv.FormatUint(since, 10)}, "follow": {strconv.FormatBool(follow)}}
	body, err := c.request(ctx, http.MethodGet, "events", q, nil)
	if err != nil {
		return ignoreCancel(ctx, err)
	}
	defer body.Close()
	for in := json.NewDecoder(bufio.NewReader(body)); ; {
		var e api.Event
		switch err := in.Decode(&e); {
		case errors.Is(err, io.EOF):
			if follow {
				err = &UnreachableError{Path: c.path, Hint: "the agent stopped: it closed the stream of events", Err: err}
				return ignoreCancel(ctx, err)
			}
			return nil
		case err != nil:
			return ignoreCancel(ctx, fmt.Errorf("read events: %w", err))
		}
		if err := handle(e); err != nil {
			return err
		}
	}
}

// ignoreCancel returns nil if ctx has ended, because the caller itself has then ended the call. Otherwise it returns
// err.
func ignoreCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the caller has ended the call
	}
	return err
}

// fetch sends a request and decodes the answer. path is the path of the request below /v1/.
func fetch[T any](ctx context.Context, c *Client, method, path string, q url.Values, requestBody []byte) (answer T, err error) {
	body, err := c.request(ctx, method, path, q, requestBody)
	if err != nil {
		return answer, err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return answer, fmt.Errorf("read the agent's answer: %w", err)
	}
	return answer, nil
}

// request sends a request and returns the body of the answer. The error is *RefusedError if the agent's HTTP status is
// not 200. path is the path of the request below /v1/.
func (c *Client) request(ctx context.Context, method, path string, q url.Values, requestBody []byte) (io.ReadCloser, error) {
	target := url.URL{Scheme: "http", Host: "trimtab", Path: "/v1/" + path, RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(requestBody))
	if err != nil {
		return nil, fmt.Errorf("create a request to the agent: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(c.path, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var f errorBody
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&f); err != nil || f.Error == "" {
		f.Error = "the agent answered " + resp.Status
	}
	return nil, &RefusedError{Status: resp.StatusCode, Reason: f.Error}
}
