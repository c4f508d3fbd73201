package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/trimtab/trimtab/test/vm/wire"
)

// guestClient sends requests to the helper program in a guest (test/vm/guest, protocol in test/vm/wire). Several
// goroutines may use it.
type guestClient struct {
	address string // the helper program's TCP address on the host
	client  *http.Client
}

func newGuestClient(address string) *guestClient {
	return &guestClient{address, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
}

// do sends an HTTP request and returns the body of the answer. For the status 404 it returns fs.ErrNotExist.
func (c *guestClient) do(ctx context.Context, method, path string, query url.Values, body io.Reader) ([]byte, error) {
	target := "http://" + c.address + path + "?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	answer, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the guest's answer to %s %s: %w", method, path, err)
	case answer.StatusCode == http.StatusNotFound:
		return nil, &fs.PathError{Op: "open", Path: query.Get("path"), Err: fs.ErrNotExist}
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the guest answers %s %s with an error: %s", method, path, bytes.TrimSpace(text))
	}
	return text, nil
}

// awaitReady waits until the helper program in the guest answers. It returns an error if the machine has ended.
func (c *guestClient) awaitReady(ctx context.Context, gone <-chan struct{}) error {
	return until(ctx, 20*time.Millisecond, func() (bool, error) {
		select {
		case <-gone:
			return false, errors.New("the virtual machine has ended")
		default:
		}
		// QEMU accepts connections before the guest can answer. So each attempt needs a timeout.
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := c.do(try, http.MethodGet, "/ready", nil, nil)
		return err == nil, nil
	})
}

// exec runs a program in the guest.
func (c *guestClient) exec(ctx context.Context, cmd wire.Command) (wire.Result, error) {
	text, err := json.Marshal(cmd)
	if err != nil {
		return wire.Result{}, err
	}
	answer, err := c.do(ctx, http.MethodPost, "/exec", nil, bytes.NewReader(text))
	if err != nil {
		return wire.Result{}, fmt.Errorf("run %v in the guest: %w", cmd.Argv, err)
	}
	var r wire.Result
	return r, json.Unmarshal(answer, &r)
}

// get returns the content of a file of the guest.
func (c *guestClient) get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, "/file", url.Values{"path": {path}}, nil)
}

// put writes a file of the guest atomically.
func (c *guestClient) put(ctx context.Context, path string, mode fs.FileMode, content io.Reader) error {
	_, err := c.do(ctx, http.MethodPut, "/file", url.Values{"path": {path}, "mode": {fmt.Sprintf("%o", mode)}}, content)
	return err
}

// tar returns a tar archive of the regular files below the paths in the guest.
func (c *guestClient) tar(ctx context.Context, paths ...string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, "/tar", url.Values{"path": paths}, nil)
}

// setClock sets the guest's clock to the host's time.
func (c *guestClient) setClock(ctx context.Context) error {
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	_, err := c.do(ctx, http.MethodPost, "/clock", url.Values{"ns": {now}}, nil)
	return err
}

// dial connects to a socket in the guest.
func (c *guestClient) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	query := url.Values{"network": {network}, "address": {address}}
	target := "http://" + c.address + "/dial?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		conn.Close()
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", wire.Upgrade)
	if err := req.Write(conn); err != nil {
		conn.Close()
		return nil, err
	}
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, req)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		conn.Close()
		return nil, fmt.Errorf("the guest cannot connect to %s %s: %s", network, address, bytes.TrimSpace(text))
	}
	return &stream{conn, reader}, nil
}

// stream is a connection to a socket in the guest. Its first bytes possibly came together with the header of the HTTP
// answer, and are then in the reader.
type stream struct {
	net.Conn
	reader *bufio.Reader
}

func (s *stream) Read(p []byte) (int, error) { return s.reader.Read(p) }
