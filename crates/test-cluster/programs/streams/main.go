// Streams executes remote commands and forwards ports with client-go, in the same way as kubectl.
//
//	streams exec TRANSPORT URL [tty]
//	streams forward spdy|tunnel|fallback URL PORT
//
// exec copies its input and both outputs, and ends with the exit code of the command, or with 125 and a message after
// "error: ". A terminal has 80 columns and 24 rows, and 132 and 50 after the first output. TRANSPORT is a WebSocket protocol such as v5.channel.k8s.io, "spdy",
// "spdy:" and a protocol, or "fallback": a WebSocket protocol that servers refuse, and then SPDY.
//
// forward prints the local port, and forwards connections until its input ends.
//
// $KUBECONFIG, if set, has the certificate authority of the server and the credentials of the user.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// The exit code of a command whose result is not known.
const failed = 125

func main() {
	address, err := url.Parse(os.Args[3])
	var config *rest.Config
	if err == nil {
		config, err = configuration(address)
	}
	switch {
	case err != nil:
	case os.Args[1] == "exec":
		err = execute(config, os.Args[2], address, len(os.Args) > 4)
	default:
		err = forward(config, os.Args[2], address, os.Args[4])
	}
	var exit exec.CodeExitError
	if errors.As(err, &exit) {
		os.Exit(exit.Code)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(failed)
	}
}

func configuration(address *url.URL) (*rest.Config, error) {
	if file := os.Getenv("KUBECONFIG"); file != "" {
		return clientcmd.BuildConfigFromFlags("", file)
	}
	return &rest.Config{Host: address.Host}, nil
}

func execute(config *rest.Config, transport string, address *url.URL, tty bool) error {
	executor, err := executor(config, transport, address)
	if err != nil {
		return err
	}
	options := remotecommand.StreamOptions{Stdin: os.Stdin, Stdout: os.Stdout, Tty: tty}
	if tty {
		terminal := &terminal{sizes: make(chan remotecommand.TerminalSize, 2)}
		terminal.sizes <- remotecommand.TerminalSize{Width: 80, Height: 24}
		options.TerminalSizeQueue, options.Stdout = terminal, terminal
	} else {
		options.Stderr = os.Stderr
	}
	return executor.StreamWithContext(context.Background(), options)
}

func executor(config *rest.Config, transport string, address *url.URL) (remotecommand.Executor, error) {
	websocket := func(protocol string) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutorForProtocols(config, "GET", address.String(), protocol)
	}
	if transport == "spdy" {
		return remotecommand.NewSPDYExecutor(config, "POST", address)
	}
	if protocol, ok := strings.CutPrefix(transport, "spdy:"); ok {
		wrapper, upgrader, err := spdy.RoundTripperFor(config)
		if err != nil {
			return nil, err
		}
		return remotecommand.NewSPDYExecutorForProtocols(wrapper, upgrader, "POST", address, protocol)
	}
	if transport != "fallback" {
		return websocket(transport)
	}
	primary, err := websocket("v9.channel.k8s.io")
	if err != nil {
		return nil, err
	}
	secondary, err := remotecommand.NewSPDYExecutor(config, "POST", address)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(primary, secondary, httpstream.IsUpgradeFailure)
}

// terminal is resized once, after the first output.
type terminal struct {
	sizes     chan remotecommand.TerminalSize
	isResized bool
}

func (t *terminal) Next() *remotecommand.TerminalSize {
	size := <-t.sizes
	return &size
}

func (t *terminal) Write(output []byte) (int, error) {
	if !t.isResized {
		t.isResized = true
		t.sizes <- remotecommand.TerminalSize{Width: 132, Height: 50}
	}
	return os.Stdout.Write(output)
}

func forward(config *rest.Config, transport string, address *url.URL, port string) error {
	dialer, err := dialer(config, transport, address)
	if err != nil {
		return err
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewForStreaming(dialer, []string{"0:" + port}, stop, ready, io.Discard, os.Stderr)
	if err != nil {
		return err
	}
	go func() {
		<-ready
		if ports, err := forwarder.GetPorts(); err == nil {
			fmt.Println(ports[0].Local)
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	return forwarder.ForwardPorts()
}

func dialer(config *rest.Config, transport string, address *url.URL) (httpstream.Dialer, error) {
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, config)
	if err != nil || transport == "tunnel" {
		return tunnel, err
	}
	wrapper, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	direct := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: wrapper}, "POST", address)
	if transport == "spdy" {
		return direct, nil
	}
	return portforward.NewFallbackDialerForStreaming(tunnel, direct, httpstream.IsUpgradeFailure), nil
}
