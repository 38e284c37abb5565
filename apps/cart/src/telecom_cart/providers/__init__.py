"""Platforms behind `telecom_cart.provider`.

salesforce, salesforce_answers, slas          Salesforce B2C Commerce: its verbs, what it answers, who a shopper is
shopify, shopify_answers, shopify_documents   Shopify Storefront: its verbs, what it answers, what it is asked
double                                        a provider in the process, for tests

http_calls          how adapters speak HTTP
answers             how they read what a platform answers
platform, faults    a platform's memory, and what can go wrong there: for the double and the simulators

conformance         what every provider must do; `basket_conformance` and `order_conformance` are its parts
obedient_shop       what that needs of a platform; `obedient_double` is one
"""
