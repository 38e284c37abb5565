"""What is asked of Shopify, in GraphQL. Operations are named after the verbs of the contract.

Every argument is a variable of the same name.
"""

from __future__ import annotations

USER_ERRORS = "userErrors { code field message }"
CART = """
fragment CartFields on Cart {
  id
  attributes { key value }
  cost { subtotalAmount { amount currencyCode } }
  lines(first: 250, after: $after) {
    nodes {
      id
      quantity
      attributes { key value }
      merchandise { ... on ProductVariant { id } }
      cost { amountPerQuantity { amount currencyCode } }
    }
    pageInfo { hasNextPage endCursor }
  }
}
"""

CREATE_CART = f"""
mutation CreateCart($input: CartInput!) {{
  cartCreate(input: $input) {{ cart {{ id }} {USER_ERRORS} }}
}}
"""
GET_CART = f"""
query GetCart($id: ID!, $after: String) {{
  cart(id: $id) {{ ...CartFields }}
}}
{CART}
"""
VALIDATE_CONTEXT = """
query ValidateContext($id: ID!) {
  cart(id: $id) { id attributes { key value } lines(first: 1) { nodes { id } } }
}
"""
HEALTH = """
query Health {
  shop { name }
}
"""
HEALTH_OF_ORDERS = """
query HealthOfOrders($query: String!) {
  orders(first: 1, query: $query) { nodes { id } }
}
"""
ADD_ITEM = f"""
mutation AddItem($cartId: ID!, $lines: [CartLineInput!]!) {{
  cartLinesAdd(cartId: $cartId, lines: $lines) {{ cart {{ id }} {USER_ERRORS} }}
}}
"""
CHANGE_ITEM = f"""
mutation AddItem($cartId: ID!, $lines: [CartLineUpdateInput!]!) {{
  cartLinesUpdate(cartId: $cartId, lines: $lines) {{ cart {{ id }} {USER_ERRORS} }}
}}
"""
REMOVE_ITEM = f"""
mutation RemoveItem($cartId: ID!, $lineIds: [ID!]!) {{
  cartLinesRemove(cartId: $cartId, lineIds: $lineIds) {{ cart {{ id }} {USER_ERRORS} }}
}}
"""
EMPTY_CART = REMOVE_ITEM.replace("RemoveItem", "CloseCart")
SET_REFERENCE = f"""
mutation SetReference($cartId: ID!, $attributes: [AttributeInput!]!) {{
  cartAttributesUpdate(cartId: $cartId, attributes: $attributes) {{ cart {{ id }} {USER_ERRORS} }}
}}
"""
MARK_CLOSED = SET_REFERENCE.replace("SetReference", "CloseCart")
PREPARE = f"""
mutation PrepareCheckout($cartId: ID!) {{
  cartPrepareForCompletion(cartId: $cartId) {{
    result {{
      __typename
      ... on CartStatusReady {{ cart {{ id }} }}
      ... on CartStatusNotReady {{ errors {{ code message }} }}
      ... on CartThrottled {{ pollAfter }}
    }}
    {USER_ERRORS}
  }}
}}
"""
PAY = f"""
mutation PayCheckout($cartId: ID!, $payment: CartPaymentInput!) {{
  cartPaymentUpdate(cartId: $cartId, payment: $payment) {{ cart {{ id }} {USER_ERRORS} }}
}}
"""
SUBMIT = f"""
mutation Checkout($cartId: ID!, $attemptToken: String!) {{
  cartSubmitForCompletion(cartId: $cartId, attemptToken: $attemptToken) {{
    result {{
      __typename
      ... on SubmitSuccess {{ attemptId }}
      ... on SubmitAlreadyAccepted {{ attemptId }}
      ... on SubmitFailed {{ errors {{ code message }} }}
      ... on SubmitThrottled {{ pollAfter }}
    }}
    {USER_ERRORS}
  }}
}}
"""
POLL = """
query CheckoutResult($attemptId: String!) {
  cartCompletionAttempt(attemptId: $attemptId) {
    __typename
    ... on CartCompletionProcessing { id pollDelay }
    ... on CartCompletionSuccess { id orderId }
    ... on CartCompletionFailed { id errors { code message } }
    ... on CartCompletionActionRequired { id }
  }
}
"""
ORDER = """
fragment OrderFields on Order {
  id
  cancelledAt
  displayFinancialStatus
  customAttributes { key value }
  subtotalPriceSet { presentmentMoney { amount currencyCode } }
}
"""
GET_ORDER = f"""
query GetOrder($id: ID!) {{
  order(id: $id) {{ ...OrderFields }}
}}
{ORDER}
"""
FIND_ORDER = f"""
query FindOrder($query: String!, $after: String) {{
  orders(first: 50, after: $after, sortKey: CREATED_AT, query: $query) {{
    nodes {{ ...OrderFields }}
    pageInfo {{ hasNextPage endCursor }}
  }}
}}
{ORDER}
"""
