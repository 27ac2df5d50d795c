# farm-operator: one static program, no shell, no root, nothing to write.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg COMMIT="$(git rev-parse --short=12 HEAD)" \
#     --sbom=true --tag registry.example.com/farm-operator:0.1.0 --push .
#
# Each architecture is built by itself, natively or emulated: Alpine's Rust makes programs that need no libc.
FROM rust:1.95-alpine AS build
RUN apk add --no-cache musl-dev gcc make
WORKDIR /source
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY src src
COPY tests tests
COPY examples examples
COPY benches benches
# What `--version` and `/version` say.
ARG COMMIT
RUN FARM_OPERATOR_COMMIT=$COMMIT cargo build --release --locked --package farm-operator --bin farm-operator

# The example `reflected`: docker build --target reflected .
FROM build AS build-reflected
RUN cargo build --release --locked --package farm-operator --example reflected

FROM scratch AS reflected
COPY --from=build-reflected /source/target/release/examples/reflected /reflected
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/reflected"]

# The program alone: CAs come from the ServiceAccount, from Secrets and from files that flags name.
FROM scratch
ARG COMMIT
LABEL org.opencontainers.image.title=farm-operator \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.revision=$COMMIT
COPY --from=build /source/target/release/farm-operator /farm-operator
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
EXPOSE 3000
ENTRYPOINT ["/farm-operator"]
