// Command forward forwards TCP connections, as kube-proxy does on a node for the API server's service.
// Guests need kube-proxy for nothing else.
package main

import (
	"io"
	"log"
	"net"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: forward LISTEN TO")
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go forwardConn(c, os.Args[2])
	}
}

// forwardConn copies in both directions until one side ends.
func forwardConn(here net.Conn, to string) {
	defer here.Close()
	there, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer there.Close()
	go func() {
		_, _ = io.Copy(there, here)
		there.Close()
		here.Close()
	}()
	_, _ = io.Copy(here, there)
}
