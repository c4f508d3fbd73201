package nrihost

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/nri/pkg/api"
	ttrpc "github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
)

// A plugin's connection begins with frames of the NRI multiplexer (pkg/net/multiplex). These frames contain a ttrpc
// message. All numbers in the headers are big endian. The comments below give the bytes of each header field.
const (
	muxHeaderBytes     = 8  // connection id (4), length (4)
	runtimeServiceConn = 2  // the connection id of the runtime's service
	ttrpcHeaderBytes   = 10 // length (4), stream (4), type (1), flags (1)
	ttrpcRequestType   = 1  // the value of the header field type for a request
)

// errNotPlugin is the error for a client whose first message does not register a plugin.
var errNotPlugin = errors.New("the first message does not register a plugin")

// readRegistration reads the frames of a plugin's first message, and returns the plugin's index and name. The result
// consumed has all bytes that readRegistration has read, because the NRI library must get them too.
func readRegistration(r io.Reader) (consumed []byte, name string, err error) {
	var body []byte
	for len(body) < ttrpcHeaderBytes || len(body) < ttrpcHeaderBytes+int(binary.BigEndian.Uint32(body)) {
		head := make([]byte, muxHeaderBytes)
		if _, err := io.ReadFull(r, head); err != nil {
			return nil, "", fmt.Errorf("read the first message: %w", err)
		}
		n := binary.BigEndian.Uint32(head[4:])
		if binary.BigEndian.Uint32(head) != runtimeServiceConn || n > maxFirstMessage || len(body)+int(n) > maxFirstMessage {
			return nil, "", errNotPlugin
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(r, frame); err != nil {
			return nil, "", fmt.Errorf("read the first message: %w", err)
		}
		consumed = append(append(consumed, head...), frame...)
		if body = append(body, frame...); len(body) >= ttrpcHeaderBytes && binary.BigEndian.Uint32(body) > maxFirstMessage {
			return nil, "", errNotPlugin
		}
	}
	name, err = registeredName(body)
	return consumed, name, err
}

// registeredName returns the index and name of the plugin, such as "10-cpus", from the ttrpc message that registers it.
func registeredName(body []byte) (string, error) {
	if body[8] != ttrpcRequestType {
		return "", errNotPlugin
	}
	req, register := &ttrpc.Request{}, &api.RegisterPluginRequest{}
	if proto.Unmarshal(body[ttrpcHeaderBytes:ttrpcHeaderBytes+int(binary.BigEndian.Uint32(body))], req) != nil || req.GetMethod() != "RegisterPlugin" ||
		proto.Unmarshal(req.GetPayload(), register) != nil || register.GetPluginName() == "" {
		return "", errNotPlugin
	}
	return register.GetPluginIdx() + "-" + register.GetPluginName(), nil
}
